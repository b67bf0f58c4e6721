//! The score card: the points of every rule, the score, and what was seen of the client. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Serialize;

use super::rules::{Arrival, Crawl, RULES};
use super::web::SyntheticWeb;

/// How polite one run of a command was.
#[derive(Clone, Debug, Serialize)]
pub struct ScoreCard {
    /// From 0 to 100, of the points of rules that the client met; `None` if it met none.
    pub score: Option<u32>,
    /// The points of the rules that the client met, of 100.
    pub tested: u32,
    pub requests: usize,
    /// Seconds from the first request to the last.
    pub seconds: f64,
    pub user_agents: Vec<String>,
    pub rules: Vec<ScoredRule>,
    pub hosts: Vec<VisitedHost>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ScoredRule {
    pub id: &'static str,
    pub title: &'static str,
    pub source: &'static str,
    pub points: u32,
    /// `None` if the client never met the rule.
    pub earned: Option<f64>,
    pub evidence: String,
}

/// The requests to one host.
#[derive(Clone, Debug, Serialize)]
pub struct VisitedHost {
    pub host: &'static str,
    /// When they arrived, in seconds since the web began.
    pub arrivals: Vec<f64>,
}

impl ScoreCard {
    pub fn of(web: &SyntheticWeb, mut arrivals: Vec<Arrival>) -> ScoreCard {
        arrivals.sort_by_key(|arrival| arrival.at);
        let crawl = Crawl { web, arrivals: &arrivals };
        let rules = RULES.iter().map(|rule| {
            let kept = (rule.judge)(crawl);
            let earned = kept.as_ref().map(|(share, _)| tenths(share * f64::from(rule.points)));
            let evidence = kept.map_or_else(|| "not tested: the client never met this".to_owned(), |(_, text)| text);
            let (id, title, source, points) = (rule.id, rule.title, rule.source, rule.points);
            ScoredRule { id, title, source, points, earned, evidence }
        });
        let rules: Vec<ScoredRule> = rules.collect();
        let tested: u32 = rules.iter().filter(|rule| rule.earned.is_some()).map(|rule| rule.points).sum();
        let earned: f64 = rules.iter().filter_map(|rule| rule.earned).sum();
        let times = || arrivals.iter().map(|arrival| arrival.at);
        let span = times().max().unwrap_or_default() - times().min().unwrap_or_default();
        let agents: BTreeSet<&str> = arrivals.iter().map(|arrival| arrival.user_agent.as_str()).collect();
        ScoreCard {
            // Rounded down: 100 means that nothing was lost.
            score: (tested > 0).then(|| (earned * 100.0 / f64::from(tested) + 1e-9).floor() as u32),
            tested,
            requests: arrivals.len(),
            seconds: millis(span),
            user_agents: agents.into_iter().map(str::to_owned).collect(),
            rules,
            hosts: visited(web, &arrivals),
        }
    }
}

fn visited(web: &SyntheticWeb, arrivals: &[Arrival]) -> Vec<VisitedHost> {
    let mut hosts: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
    for arrival in arrivals {
        hosts.entry(arrival.host).or_default().push(millis(arrival.at));
    }
    hosts.into_iter().map(|(host, arrivals)| VisitedHost { host: web.name(host), arrivals }).collect()
}

fn tenths(points: f64) -> f64 {
    (points * 10.0).round() / 10.0
}

/// In seconds, to the millisecond.
fn millis(time: Duration) -> f64 {
    time.as_millis() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_points_add_up_to_100() {
        assert_eq!(RULES.iter().map(|rule| rule.points).sum::<u32>(), 100);
    }

    #[test]
    fn every_rule_is_documented_with_its_points() {
        let page = include_str!("../../docs/judge.md");
        for rule in RULES {
            let row = format!("| `{}` | {} |", rule.id, rule.points);
            assert!(page.contains(&row), "docs/judge.md has no row that begins with {row}");
        }
    }

    #[test]
    fn what_was_not_met_counts_neither_way() {
        let web = SyntheticWeb::new(1);
        let page = Arrival { path: "/".to_owned(), status: 200, user_agent: "a/1".to_owned(), ..Arrival::default() };
        let card = ScoreCard::of(&web, vec![page.clone()]);
        // No robots.txt (0 of 10), and a name without a contact (1.2 of 3): the rest was not met.
        assert_eq!((card.score, card.tested, card.requests), (Some(9), 13, 1));
        assert_eq!(card.rules.iter().filter(|rule| rule.evidence.starts_with("not tested")).count(), 9);
        let robots = Arrival { path: "/robots.txt".to_owned(), ..page.clone() };
        let contact =
            Arrival { user_agent: "bot/1 (+https://bot.test/)".to_owned(), at: Duration::from_secs(1), ..page };
        let card = ScoreCard::of(&web, vec![contact, robots]);
        assert_eq!((card.score, card.seconds, card.user_agents.len()), (Some(100), 1.0, 2));
        assert_eq!(card.hosts[0].arrivals, [0.0, 1.0], "in the order of arrival");
        assert_eq!(ScoreCard::of(&web, Vec::new()).score, None);
    }
}
