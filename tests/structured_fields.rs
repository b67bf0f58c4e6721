//! Runs the parser for structured fields (RFC 9651) on the cases of the HTTP working group
//! (`tests/data/structured-fields`).

use curtsy::politeness::signals::structured::parse;
use serde::Deserialize;
use serde_json::{Value, json};
use sfv::{BareItem, Dictionary, InnerList, Item, List, ListEntry, Parameters};

#[derive(Deserialize)]
struct Case {
    file: String,
    name: String,
    raw: Vec<String>,
    header_type: String,
    expected: Option<Value>,
    #[serde(default)]
    must_fail: bool,
    #[serde(default)]
    can_fail: bool,
}

impl Case {
    /// The result of curtsy, in the notation of the cases.
    fn read(&self) -> Option<Value> {
        let lines = self.raw.iter().map(String::as_str);
        match self.header_type.as_str() {
            "item" => parse::<Item>(lines).map(|item| of_item(&item)),
            "list" => parse::<List>(lines).map(|list| list.iter().map(of_entry).collect()),
            "dictionary" => parse::<Dictionary>(lines).map(|members| of_dictionary(&members)),
            other => panic!("no such type: {other}"),
        }
    }

    fn difference(&self) -> Option<String> {
        let read = self.read();
        let agrees = match &read {
            Some(value) => !self.must_fail && self.expected.as_ref() == Some(value),
            None => self.must_fail || self.can_fail,
        };
        (!agrees).then(|| format!("{}: {}: {:?} is {read:?}", self.file, self.name, self.raw))
    }
}

fn of_dictionary(members: &Dictionary) -> Value {
    members.iter().map(|(key, entry)| json!([key.as_str(), of_entry(entry)])).collect()
}

fn of_entry(entry: &ListEntry) -> Value {
    match entry {
        ListEntry::Item(item) => of_item(item),
        ListEntry::InnerList(InnerList { items, params }) => {
            json!([items.iter().map(of_item).collect::<Value>(), of_parameters(params)])
        }
    }
}

fn of_item(item: &Item) -> Value {
    json!([of_bare(&item.bare_item), of_parameters(&item.params)])
}

fn of_parameters(parameters: &Parameters) -> Value {
    parameters.iter().map(|(key, value)| json!([key.as_str(), of_bare(value)])).collect()
}

fn of_bare(item: &BareItem) -> Value {
    let typed = |name: &str, value: Value| json!({"__type": name, "value": value});
    match item {
        BareItem::Integer(whole) => json!(i64::from(*whole)),
        BareItem::Decimal(decimal) => json!(decimal.to_string().parse::<f64>().expect("a decimal is a number")),
        BareItem::String(text) => json!(text.as_str()),
        BareItem::Boolean(truth) => json!(truth),
        BareItem::Token(token) => typed("token", json!(token.as_str())),
        BareItem::ByteSequence(bytes) => typed("binary", json!(base32(bytes))),
        BareItem::Date(date) => typed("date", json!(i64::from(date.unix_seconds()))),
        BareItem::DisplayString(text) => typed("displaystring", json!(text.as_str())),
    }
}

/// RFC 4648, section 6: five bits a letter, padded to eight letters.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
    let mut text = String::new();
    for five in bytes.chunks(5) {
        let bits = (0..5).fold(0_u64, |bits, at| bits << 8 | u64::from(five.get(at).copied().unwrap_or(0)));
        let used = (five.len() * 8).div_ceil(5);
        text.extend((0..8).map(|at| match at < used {
            true => char::from(LETTERS[(bits >> (35 - 5 * at)) as usize & 31]),
            false => '=',
        }));
    }
    text
}

fn check(cases: &[Case]) {
    let differences: Vec<String> = cases.iter().filter_map(Case::difference).collect();
    assert!(differences.is_empty(), "{} of {}:\n{}", differences.len(), cases.len(), differences.join("\n"));
}

#[test]
fn every_case_of_the_working_group_is_read_as_expected() {
    let cases: Vec<Case> =
        serde_json::from_str(include_str!("data/structured-fields/cases.json")).expect("cases in JSON");
    assert_eq!(cases.len(), 1_549);
    check(&cases);
}

/// Cases that the suite leaves out, by the grammar of RFC 9651, section 3.3.7.
#[test]
fn a_date_is_a_whole_number_of_seconds() {
    let case = |raw: &str, seconds: Option<i64>| Case {
        file: "date".to_owned(),
        name: raw.to_owned(),
        raw: vec![raw.to_owned()],
        header_type: "item".to_owned(),
        expected: seconds.map(|seconds| json!([{"__type": "date", "value": seconds}, []])),
        must_fail: seconds.is_none(),
        can_fail: false,
    };
    check(&[
        case("@999999999999999", Some(999_999_999_999_999)),
        case("@-999999999999999", Some(-999_999_999_999_999)),
        case("@-0", Some(0)),
        case("@9999999999999999", None),
        case("@", None),
        case("@-", None),
        case("@+1", None),
        case("@ 1", None),
        case("@@1", None),
        case("@1.", None),
        case("@abc", None),
        case("@\"1\"", None),
    ]);
}

#[test]
fn base32_is_written_as_in_the_standard() {
    let samples =
        [("", ""), ("f", "MY======"), ("fo", "MZXQ===="), ("foo", "MZXW6==="), ("foobar", "MZXW6YTBOI======")];
    for (plain, coded) in samples {
        assert_eq!(base32(plain.as_bytes()), coded);
    }
}
