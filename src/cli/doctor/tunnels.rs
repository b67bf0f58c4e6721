//! What the metrics of a running curtsy say about tunnels: requests that were lost or not paced, and not because of
//! their clients.

use super::finding::Finding;

/// Returns a warning for each kind of trouble.
pub(super) fn check(metrics: &str) -> Vec<Finding> {
    let count = |series: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.and_then(|number| number.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let troubles = [
        (
            count("curtsy_tunnels_closed_by_origin_total"),
            "tunnels were closed by the origin while a request in them waited: the clients see RemoteDisconnected, \
             ServerDisconnectedError or ECONNRESET",
            "curtsy --intercept, or let the client open a connection for each request (Connection: close)",
        ),
        (
            count("curtsy_tunnels_closed_early_total{result=\"cut\"}"),
            "answers in tunnels were cut short, because the origin paused in the middle of them while others waited",
            "curtsy --intercept",
        ),
        (
            count("curtsy_tunnel_pacing_total{mode=\"http2\"}"),
            "tunnels had HTTP/2 inside: their requests were not paced",
            "curtsy --intercept, or HTTP/1.1 (curl --http1.1), or tls.tunnel.http2 = \"refuse\"",
        ),
    ];
    let troubles = troubles.into_iter().filter(|(count, ..)| *count > 0.0);
    troubles.map(|(count, text, fix)| Finding::warn("tunnels", format!("{count} {text}"), fix)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_trouble_is_told_with_its_number() {
        let quiet = "# HELP curtsy_tunnels_closed_by_origin_total x\ncurtsy_tunnels_closed_by_origin_total 0\n";
        assert_eq!(check(quiet), []);
        assert_eq!(check(""), []);
        let findings = check(
            "curtsy_tunnels_closed_by_origin_total 2\ncurtsy_tunnel_pacing_total{mode=\"http2\"} 7\n\
             curtsy_tunnel_pacing_total{mode=\"paced\"} 9\ncurtsy_tunnels_closed_early_total{result=\"cut\"} 1\n",
        );
        let texts: Vec<&str> = findings.iter().map(|finding| &finding.text[..15]).collect();
        assert_eq!(texts, ["2 tunnels were ", "1 answers in tu", "7 tunnels had H"]);
    }
}
