//! Several redis-servers that belong together: a Cluster, and a master with a replica and a Sentinel.

use super::deadline::soon;
use super::redis::RedisServer;

/// Three masters with a third of the slots each, and maybe a replica of each.
pub(crate) struct RedisCluster {
    /// The masters first, then the replicas in the same order.
    pub(crate) servers: Vec<RedisServer>,
}

impl RedisCluster {
    pub(crate) fn start() -> Self {
        Self::of(3)
    }

    pub(crate) fn with_replicas() -> Self {
        Self::of(6)
    }

    fn of(count: usize) -> Self {
        let options = ["--cluster-enabled", "yes", "--cluster-node-timeout", "1000", "--cluster-config-file", "nodes"];
        let servers: Vec<_> = (0..count).map(|_| RedisServer::with(&options)).collect();
        for (server, (first, last)) in servers.iter().zip([(0, 5460), (5461, 10_922), (10_923, 16_383)]) {
            server.run::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        }
        for (epoch, server) in servers.iter().enumerate() {
            server.run::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(epoch + 1).to_string()]);
            server.run::<()>(&["CLUSTER", "MEET", "127.0.0.1", &servers[0].port().to_string()]);
        }
        let cluster = RedisCluster { servers };
        let knows_all = |server: &RedisServer| server.run::<String>(&["CLUSTER", "NODES"]).lines().count() == count;
        assert!(soon(|| cluster.servers.iter().all(knows_all)), "the servers do not meet");
        for replica in 3..count {
            let master: String = cluster.servers[replica - 3].run(&["CLUSTER", "MYID"]);
            let server = &cluster.servers[replica];
            // Refused until gossip has told it that the other one is a master.
            let is_replica = || server.try_run::<()>(&["CLUSTER", "REPLICATE", &master]).is_ok();
            assert!(soon(is_replica), "a replica does not find its master");
        }
        let is_synced = |replica: usize| cluster.servers[replica].info("master_link_status") == "up";
        assert!(soon(|| (3..count).all(is_synced)), "a replica does not follow its master");
        assert!(soon(|| cluster.is_whole()), "the Cluster does not become whole");
        cluster
    }

    /// Whether every server that runs believes that all slots are served.
    pub(crate) fn is_whole(&self) -> bool {
        let state = |server: &RedisServer| server.try_run::<String>(&["CLUSTER", "INFO"]);
        self.servers.iter().filter_map(|server| state(server).ok()).all(|info| info.contains("cluster_state:ok"))
    }

    pub(crate) fn urls(&self) -> Vec<String> {
        self.servers.iter().map(RedisServer::url).collect()
    }

    /// Moves a slot between two masters, up to the point where the first has said that it is moving.
    pub(crate) fn begin_move(&self, slot: u16, from: usize, to: usize) {
        let [source, target] = [from, to].map(|place| self.servers[place].run::<String>(&["CLUSTER", "MYID"]));
        let slot = slot.to_string();
        self.servers[to].run::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        self.servers[from].run::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    }

    /// Ends a move.
    pub(crate) fn end_move(&self, slot: u16, to: usize) {
        let target: String = self.servers[to].run(&["CLUSTER", "MYID"]);
        for server in [&self.servers[to]].into_iter().chain(&self.servers[..3]) {
            server.run::<()>(&["CLUSTER", "SETSLOT", &slot.to_string(), "NODE", &target]);
        }
    }
}

/// A master, a replica of it, and a Sentinel that watches both.
pub(crate) struct SentinelSet {
    pub(crate) master: RedisServer,
    pub(crate) replica: RedisServer,
    pub(crate) sentinel: RedisServer,
}

impl SentinelSet {
    pub(crate) fn start() -> Self {
        let master = RedisServer::with(&["--user copy", "on", ">copy", "+psync", "+replconf", "+ping"]);
        let port = master.port().to_string();
        let login = ["--masteruser", "copy", "--masterauth", "copy"];
        let copies = ["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"];
        let replica = RedisServer::with(&[&copies[..], &login].concat());
        let sentinel = RedisServer::sentinel(&master);
        assert!(soon(|| replica.info("master_link_status") == "up"), "the replica does not follow its master");
        let knows_replica = || {
            let all: Vec<Vec<String>> = sentinel.run(&["SENTINEL", "REPLICAS", "mymaster"]);
            all.len() == 1
        };
        assert!(soon(knows_replica), "the Sentinel does not see the replica");
        SentinelSet { master, replica, sentinel }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis+sentinel://127.0.0.1:{}/mymaster", self.sentinel.port())
    }

    /// Cuts the replica off: it misses what is written from now on. Sentinel decides about no failover by itself then.
    pub(crate) fn cut_replica(&self) {
        // A replica that was cut off for ten times as long is not promoted.
        self.sentinel.run::<()>(&["SENTINEL", "SET", "mymaster", "down-after-milliseconds", "60000"]);
        self.master.run::<()>(&["ACL", "SETUSER", "copy", "off"]);
        self.master.run::<()>(&["CLIENT", "KILL", "TYPE", "replica"]);
        let is_cut = || self.replica.info("master_link_status") == "down";
        assert!(soon(is_cut), "the replica still follows its master");
    }

    /// Promotes a replica that was cut off.
    pub(crate) fn promote(&self) {
        // Refused while Sentinel does not know the replica well enough.
        let begins = || self.sentinel.try_run::<()>(&["SENTINEL", "FAILOVER", "mymaster"]).is_ok();
        assert!(soon(begins), "Sentinel does not fail over");
        self.expect_promoted();
    }

    /// Kills the master and waits until the replica has become one.
    pub(crate) fn fail_over(&mut self) {
        self.master.kill();
        self.expect_promoted();
    }

    fn expect_promoted(&self) {
        // Sentinel closes the clients of a server that it promotes, this one too.
        let is_master = || {
            let info = self.replica.try_run::<String>(&["INFO", "replication"]);
            info.is_ok_and(|info| info.contains("role:master"))
        };
        assert!(soon(is_master), "no failover");
    }
}
