//! Opens `Bursts` up for its fuzz target and for tests; compiled for nothing else.

use super::bursts::{BurstVerdict, Bursts, Unpaced};

/// Shows the bytes of both sides (`true` marks the client's) in pieces of at most `cut`, and grants every turn that is
/// needed. Returns where in the client's bytes requests began, and whether `Bursts` gave up.
pub fn starts(sides: &[(bool, &[u8])], cut: usize) -> (Vec<usize>, bool) {
    let mut bursts = Bursts::new();
    let (mut starts, mut passed, mut waiting) = (Vec::new(), 0, Vec::new());
    for &(is_client, bytes) in sides {
        for piece in bytes.chunks(cut.max(1)) {
            if !is_client {
                bursts.origin_sends(piece);
                continue;
            }
            waiting.extend_from_slice(piece);
            while !waiting.is_empty() {
                match bursts.client_sends(&waiting) {
                    BurstVerdict::Pass(count) => {
                        assert!((1..=waiting.len()).contains(&count), "{count} of {}", waiting.len());
                        waiting.drain(..count);
                        passed += count;
                    }
                    BurstVerdict::Turn => {
                        starts.push(passed);
                        bursts.granted();
                    }
                    BurstVerdict::More => break,
                }
            }
            assert!(waiting.len() < 5, "{} bytes are held back for nothing", waiting.len());
        }
    }
    (starts, bursts.unpaced().is_some_and(|why| why != Unpaced::Off))
}
