//! The lines of a crowd: the retries, the returning visits, and a ring of owners, each with a ring of its clients.
//!
//! A ring is a list whose first element is served next and then goes to the end. Removing a visit from the middle looks
//! through the waiting visits, everything else through the clients at most.

use std::collections::VecDeque;

use super::{QueueEntry, Rank};
use crate::politeness::visit::ClientId;

#[derive(Debug, Default)]
pub(super) struct FairQueue {
    retries: VecDeque<u32>,
    returning: VecDeque<u32>,
    owners: VecDeque<OwnerLine>,
    len: usize,
}

/// The clients of one user or address. There is at least one.
#[derive(Debug)]
struct OwnerLine {
    id: u32,
    clients: VecDeque<ClientLine>,
}

/// The visits of one client. There is at least one.
#[derive(Debug)]
struct ClientLine {
    id: ClientId,
    /// Urgency and number of each visit, in order.
    visits: VecDeque<(u8, u32)>,
}

impl FairQueue {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a visit. `visit` must not be in a line.
    pub(super) fn join(&mut self, QueueEntry { visit, rank, client, urgency }: QueueEntry) {
        self.len += 1;
        match rank {
            Rank::Retry => self.retries.push_back(visit),
            Rank::Returning => self.returning.push_back(visit),
            Rank::Newcomer => {
                let id = client.owner();
                let new = || OwnerLine { id, clients: VecDeque::new() };
                let owner = find_or_add(&mut self.owners, |owner| owner.id == id, new);
                let new = || ClientLine { id: client, visits: VecDeque::new() };
                let line = find_or_add(&mut owner.clients, |line| line.id == client, new);
                line.visits.insert(line.before(urgency), (urgency, visit));
            }
        }
    }

    /// Adds a visit before all others but those that `goes_before` names, which are at the front.
    pub(super) fn join_front(&mut self, visit: u32, goes_before: impl Fn(u32) -> bool) {
        self.len += 1;
        let at = self.retries.partition_point(|&other| goes_before(other));
        self.retries.insert(at, visit);
    }

    /// Removes a visit. `visit` must be in a line.
    pub(super) fn leave(&mut self, visit: u32) {
        self.len -= 1;
        for line in [&mut self.retries, &mut self.returning] {
            if let Some(at) = line.iter().position(|&other| other == visit) {
                line.remove(at);
                return;
            }
        }
        let found = self.find(|line| line.visits().position(|other| other == visit));
        if let Some((owner, line, at)) = found {
            self.remove(owner, line, at);
        }
    }

    /// Takes a visit. `visit` must be the first of its line. Owners and clients that were passed over wait for the next
    /// round.
    pub(super) fn take(&mut self, visit: u32) {
        let found = self.find(|line| (line.first() == visit).then_some(0));
        let Some((owner, line, _)) = found else { return self.leave(visit) };
        self.len -= 1;
        self.owners.rotate_left(owner + 1);
        let owner = self.owners.len() - 1;
        self.owners[owner].clients.rotate_left(line + 1);
        self.remove(owner, self.owners[owner].clients.len() - 1, 0);
    }

    pub(super) fn first(&self, wanted: impl Fn(u32, bool) -> bool) -> Option<u32> {
        let mut fixed = [&self.retries, &self.returning].into_iter().filter_map(|line| line.front().copied());
        let mut clients = self.owners.iter().flat_map(|owner| &owner.clients).map(ClientLine::first);
        fixed.find(|&first| wanted(first, false)).or_else(|| clients.find(|&first| wanted(first, true)))
    }

    pub(super) fn clients(&self) -> usize {
        self.owners.iter().map(|owner| owner.clients.len()).sum()
    }

    pub(super) fn in_order(&self) -> Vec<u32> {
        let newcomers = in_turn(self.owners.iter().map(|owner| owner.in_order().into_iter()).collect());
        self.retries.iter().chain(&self.returning).copied().chain(newcomers).collect()
    }

    pub(super) fn ahead(&self, rank: Rank, client: ClientId, urgency: u8) -> usize {
        match rank {
            Rank::Retry => self.retries.len(),
            Rank::Returning => self.retries.len() + self.returning.len(),
            Rank::Newcomer => {
                let (owner, own) = self.own(client, urgency);
                let owned: usize = owner.map_or(0, |owner| owner.rounds(client, own).map(|(_, most)| most).sum());
                let others = self.owners.iter().filter(|other| other.id != client.owner());
                let others: usize = others.map(|other| other.len().min(owned + 1)).sum();
                self.retries.len() + self.returning.len() + owned + others
            }
        }
    }

    /// Calls `see` for each visit that [`FairQueue::ahead`] counts, in no particular order.
    pub(super) fn each_ahead(&self, rank: Rank, client: ClientId, urgency: u8, mut see: impl FnMut(u32)) {
        self.retries.iter().copied().for_each(&mut see);
        if rank > Rank::Retry {
            self.returning.iter().copied().for_each(&mut see);
        }
        if rank != Rank::Newcomer {
            return;
        }
        let (owner, own) = self.own(client, urgency);
        let mut owned = 0;
        for (line, most) in owner.into_iter().flat_map(|owner| owner.rounds(client, own)) {
            owned += most;
            line.visits().take(most).for_each(&mut see);
        }
        for other in self.owners.iter().filter(|other| other.id != client.owner()) {
            other.in_order().into_iter().take(owned + 1).for_each(&mut see);
        }
    }

    /// Returns the client's owner, and how many of the client's own visits would go before one of this urgency.
    fn own(&self, client: ClientId, urgency: u8) -> (Option<&OwnerLine>, usize) {
        let owner = self.owners.iter().find(|owner| owner.id == client.owner());
        let line = owner.and_then(|owner| owner.clients.iter().find(|line| line.id == client));
        (owner, line.map_or(0, |line| line.before(urgency)))
    }

    /// Returns the indices of the owner and the client whose line has what is wanted, and what it returned.
    fn find(&self, wanted: impl Fn(&ClientLine) -> Option<usize>) -> Option<(usize, usize, usize)> {
        let mut owners = self.owners.iter().enumerate();
        owners.find_map(|(owner, OwnerLine { clients, .. })| {
            let found = clients.iter().enumerate().find_map(|(line, client)| wanted(client).map(|at| (line, at)));
            found.map(|(line, at)| (owner, line, at))
        })
    }

    /// Removes a visit, and the client and the owner with it if they have no other.
    fn remove(&mut self, owner: usize, line: usize, at: usize) {
        let clients = &mut self.owners[owner].clients;
        clients[line].visits.remove(at);
        if clients[line].visits.is_empty() {
            clients.remove(line);
        }
        if clients.is_empty() {
            self.owners.remove(owner);
        }
    }
}

impl OwnerLine {
    fn len(&self) -> usize {
        self.clients.iter().map(|line| line.visits.len()).sum()
    }

    fn in_order(&self) -> Vec<u32> {
        in_turn(self.clients.iter().map(ClientLine::visits).collect())
    }

    /// Returns each client's line, and how many of its visits go before a visit of `client` that is behind `own` others
    /// of that client.
    fn rounds(&self, client: ClientId, own: usize) -> impl Iterator<Item = (&ClientLine, usize)> {
        let most = move |line: &ClientLine| if line.id == client { own } else { line.visits.len().min(own + 1) };
        self.clients.iter().map(move |line| (line, most(line)))
    }
}

impl ClientLine {
    fn first(&self) -> u32 {
        self.visits[0].1
    }

    fn visits(&self) -> impl Iterator<Item = u32> {
        self.visits.iter().map(|&(_, visit)| visit)
    }

    /// Returns how many visits go before one of this urgency that joins now.
    fn before(&self, urgency: u8) -> usize {
        self.visits.partition_point(|&(other, _)| other <= urgency)
    }
}

/// Returns the element that is wanted. If there is none, adds it at the end.
fn find_or_add<T>(all: &mut VecDeque<T>, wanted: impl Fn(&T) -> bool, new: impl FnOnce() -> T) -> &mut T {
    let at = all.iter().position(wanted).unwrap_or_else(|| {
        all.push_back(new());
        all.len() - 1
    });
    &mut all[at]
}

/// Takes one of each in turn, until all are empty.
fn in_turn(mut lines: Vec<impl Iterator<Item = u32>>) -> Vec<u32> {
    let mut order = Vec::new();
    while !lines.is_empty() {
        lines.retain_mut(|line| line.next().map(|visit| order.push(visit)).is_some());
    }
    order
}
