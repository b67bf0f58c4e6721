//! Responses of origins by status code.
//!
//! The origin chooses the code, so only codes that IANA has registered have a series of their own.

use prometheus::{IntCounter, Registry};

use super::register::counters;

const KNOWN: [u16; 59] = [
    101, 200, 201, 202, 203, 204, 205, 206, 207, 208, 226, 300, 301, 302, 303, 304, 305, 307, 308, 400, 401, 402, 403,
    404, 405, 406, 407, 408, 409, 410, 411, 412, 413, 414, 415, 416, 417, 418, 421, 422, 423, 424, 425, 426, 428, 429,
    431, 451, 500, 501, 502, 503, 504, 505, 506, 507, 508, 510, 511,
];

/// The index of each code among the counters; the last one is for all others.
const PLACES: [u8; 600] = {
    let (mut places, mut known) = ([KNOWN.len() as u8; 600], 0);
    while known < KNOWN.len() {
        places[KNOWN[known] as usize] = known as u8;
        known += 1;
    }
    places
};

#[derive(Debug)]
pub(super) struct Codes([IntCounter; KNOWN.len() + 1]);

impl Codes {
    pub(super) fn new(registry: &Registry) -> Self {
        let answers = counters(registry, "curtsy_responses_total", "Responses of origins, by status code.", &["code"]);
        Codes(std::array::from_fn(|place| match KNOWN.get(place) {
            Some(code) => answers.with_label_values(&[&code.to_string()]),
            None => answers.with_label_values(&["other"]),
        }))
    }

    pub(super) fn count(&self, status: u16) {
        let place = PLACES.get(usize::from(status)).map_or(KNOWN.len(), |place| usize::from(*place));
        self.0[place].inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_that_is_not_registered_is_among_the_others() {
        let codes = Codes::new(&Registry::new());
        for status in [200, 511, 101, 0, 99, 299, 599, 600, 999, u16::MAX] {
            codes.count(status);
        }
        let counted = |status: u16| codes.0[usize::from(PLACES[usize::from(status)])].get();
        assert_eq!([200, 511, 101, 404, 299].map(counted), [1, 1, 1, 0, 7]);
    }
}
