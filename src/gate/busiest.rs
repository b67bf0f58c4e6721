//! The busiest hosts, which have their own metric series: selects them, and reads their current state.

use std::collections::HashMap;

use super::Gate;
use crate::metrics::hosts::{Present, SeriesChange};
use crate::politeness::HostKey;

impl Gate {
    /// Gives the hosts with the most visits since the last call their own metric series. Looks at every lane.
    pub fn seat_the_busiest(&self) {
        let mut visits = Vec::new();
        self.registry.each(|host, lane| {
            let recent = lane.look(|state| state.take_visits());
            if recent > 0 {
                visits.push((host.clone(), recent));
            }
        });
        let SeriesChange { given, taken } = self.metrics.hosts.reseat(visits);
        for host in taken {
            if let Some(lane) = self.registry.known(&host) {
                lane.look(|state| state.badge.carry(None));
            }
        }
        for (host, seat) in given {
            if let Some(lane) = self.registry.known(&host) {
                lane.look(|state| state.badge.carry(Some(seat)));
            }
        }
    }

    /// Returns the current delay and queue length of each host that has its own series.
    pub fn busiest(&self) -> HashMap<HostKey, Present> {
        let mut busiest = HashMap::new();
        for host in self.metrics.hosts.seated() {
            if let Some(lane) = self.registry.known(&host) {
                let present =
                    lane.look(|state| Present { delay: state.lane.delays().effective(), queued: state.lane.waiting() });
                busiest.insert(host, present);
            }
        }
        busiest
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::*;
    use crate::gate::{Bounds, HostPersistence};
    use crate::metrics::{GaugeSources, Metrics};
    use crate::politeness::policy::{Policy, PolicyBook};
    use crate::politeness::visit::Visit;
    use crate::store::{Retention, Store};

    const DELAY: Duration = Duration::from_millis(250);

    fn gate(metrics: &Arc<Metrics>) -> Arc<Gate> {
        let general = Policy { delay: DELAY, ..Policy::steps() };
        let book = PolicyBook::from(general);
        let bounds = Bounds { most: 1_000_000, idle: Duration::from_secs(3600) };
        let memories = HostPersistence::new(Arc::new(Store::memory(Retention::default())), None);
        Arc::new(Gate::new(book, bounds, 1000, memories, metrics.clone()))
    }

    async fn go(gate: &Arc<Gate>, name: &str) {
        let visit = Visit::new(gate.client("a"), 1);
        gate.join(&HostKey::parse(name).unwrap(), visit).unwrap().permit().await.unwrap().sent();
    }

    fn text(gate: &Gate, metrics: &Metrics) -> String {
        metrics.render(&GaugeSources { busiest: gate.busiest(), ..GaugeSources::default() })
    }

    /// X55: the number of series stays the same, whichever hosts are requested.
    #[tokio::test(start_paused = true)]
    async fn a_hundred_thousand_hosts_have_no_more_series_than_a_hundred() {
        let metrics: Arc<Metrics> = Arc::default();
        let gate = gate(&metrics);
        for number in 0..100 {
            go(&gate, &format!("h{number}.test")).await;
        }
        let series = text(&gate, &metrics).lines().count();
        for number in 100..100_000 {
            go(&gate, &format!("h{number}.test")).await;
        }
        gate.seat_the_busiest();
        assert_eq!(text(&gate, &metrics).lines().count(), series);
        assert!(series < 1_200, "{series}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_grows_busy_is_counted_by_itself() {
        let metrics: Arc<Metrics> = Arc::default();
        metrics.hosts.limit(1);
        let gate = gate(&metrics);
        go(&gate, "quiet.test").await;
        for _ in 0..3 {
            go(&gate, "busy.test").await;
        }
        assert!(text(&gate, &metrics).contains("curtsy_host_requests_total{host=\"_other\"} 3\n"));
        gate.seat_the_busiest();
        go(&gate, "busy.test").await;
        go(&gate, "quiet.test").await;
        let text = text(&gate, &metrics);
        for line in [
            "curtsy_host_requests_total{host=\"_other\"} 4\n",
            "curtsy_host_requests_total{host=\"busy.test\"} 1\n",
            "curtsy_host_wait_seconds_total{host=\"busy.test\"} 0.25\n",
            "curtsy_host_delay_seconds{host=\"busy.test\"} 0.25\n",
            "curtsy_host_series_dropped_total 1\n",
        ] {
            assert!(text.contains(line), "no {line} in\n{text}");
        }
        assert!(!text.contains("quiet.test"), "{text}");
    }
}
