//! Validates JSON with the schemas of the OpenAPI document. Supports the part of JSON Schema that the document uses.

use serde_json::Value;

/// The document as it is in the repository.
pub(crate) fn document() -> Value {
    serde_json::from_str(include_str!("../../../src/admin/openapi.json")).expect("the document is JSON")
}

/// The problems of a value, each with its path; empty if the value matches the schema.
pub(crate) fn problems(document: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    check(document, schema, value, "$", &mut found);
    found
}

/// The keywords that are checked. Any other keyword is an error, because it would go unchecked.
const KNOWN: [&str; 16] = [
    "$ref",
    "type",
    "enum",
    "oneOf",
    "items",
    "required",
    "properties",
    "additionalProperties",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minProperties",
    "description",
    "default",
    "format",
];

fn check(document: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    for word in schema.as_object().expect("a schema is an object").keys() {
        assert!(KNOWN.contains(&word.as_str()), "schemas say {word}, which is not checked");
    }
    if let Some(path) = schema["$ref"].as_str() {
        let named = document.pointer(path.trim_start_matches('#')).unwrap_or_else(|| panic!("there is no {path}"));
        return check(document, named, value, place, found);
    }
    if let Some(options) = schema["oneOf"].as_array() {
        let fitting = options.iter().filter(|option| problems(document, option, value).is_empty()).count();
        if fitting != 1 {
            found.push(format!("{place}: {fitting} of the options fit {value}"));
        }
    }
    if !has_type(&schema["type"], value) {
        found.push(format!("{place}: {value} is no {}", schema["type"]));
    }
    if schema["enum"].as_array().is_some_and(|options| !options.contains(value)) {
        found.push(format!("{place}: {value} is none of {}", schema["enum"]));
    }
    if schema["minimum"].as_f64().zip(value.as_f64()).is_some_and(|(least, value)| value < least) {
        found.push(format!("{place}: {value} is too small"));
    }
    for (index, item) in value.as_array().into_iter().flatten().enumerate() {
        if schema["items"].is_object() {
            check(document, &schema["items"], item, &format!("{place}[{index}]"), found);
        }
    }
    check_fields(document, schema, value, place, found);
}

fn check_fields(document: &Value, schema: &Value, value: &Value, place: &str, found: &mut Vec<String>) {
    let Some(fields) = value.as_object() else { return };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            found.push(format!("{place}.{name} is missing"));
        }
    }
    for (name, field) in fields {
        match &schema["properties"][name] {
            Value::Null if schema["additionalProperties"] == false => found.push(format!("{place}.{name} is new")),
            Value::Null => {}
            known => check(document, known, field, &format!("{place}.{name}"), found),
        }
    }
}

fn has_type(wanted: &Value, value: &Value) -> bool {
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type {other}"),
    };
    match wanted {
        Value::Null => true,
        Value::String(name) => is(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).any(is),
        other => panic!("no type is {other}"),
    }
}

#[test]
fn what_is_wrong_is_found() {
    let document = document();
    let schema = &document["components"]["schemas"]["Queue"];
    let good = serde_json::json!({"total": 0, "offset": 0, "limit": 1, "waiting": []});
    assert_eq!(problems(&document, schema, &good), Vec::<String>::new());
    for (pointer, value) in
        [("/total", "x".into()), ("/total", (-1).into()), ("/new", 1.into()), ("/waiting/0", 1.into())]
    {
        let mut bad = good.clone();
        match pointer {
            "/new" => bad["new"] = value,
            "/waiting/0" => bad["waiting"] = vec![value].into(),
            _ => bad["total"] = value,
        }
        assert_eq!(problems(&document, schema, &bad).len(), 1, "{bad}");
    }
    let mut less = good;
    less.as_object_mut().expect("an object").remove("limit");
    assert_eq!(problems(&document, schema, &less), ["$.limit is missing"]);
}
