//! Rule: a crate that may be published says what it is. A crate outside of `crates/` is no part of
//! the product, and says `publish = false`.

use anyhow::{Context, Result};
use serde_json::Value;

use super::Finding;
use crate::workspace::{cargo, root};

/// Fields that the registry shows, and by which users find a crate.
const FIELDS: [&str; 5] = ["description", "license", "readme", "keywords", "categories"];

/// The folder of the product.
const PRODUCT: &str = "crates/";

/// Returns the packages of the workspace, as `cargo metadata` describes them.
pub fn read() -> Result<Vec<Value>> {
    let metadata = cargo("metadata --no-deps --offline --format-version 1").run();
    let metadata = metadata.context("reading the manifests")?;
    // Warnings of cargo follow the line of JSON.
    let mut metadata: Value = serde_json::from_str(metadata.lines().next().unwrap_or_default())?;
    let Value::Array(packages) = metadata["packages"].take() else { return Ok(Vec::new()) };
    Ok(packages)
}

/// Returns a finding for each package that breaks the rule.
pub fn check(packages: &[Value]) -> Vec<Finding> {
    packages.iter().flat_map(of_package).collect()
}

fn of_package(package: &Value) -> Vec<Finding> {
    let manifest = package["manifest_path"].as_str().unwrap_or_default();
    let root = format!("{}/", root().display());
    let file = manifest.strip_prefix(&root).unwrap_or(manifest);
    let finding = |message| Finding { file: file.to_owned(), line: 1, rule: "package", message };
    // `publish = false` is the empty list of registries.
    let is_published = package["publish"].as_array().is_none_or(|registries| !registries.is_empty());
    if !file.starts_with(PRODUCT) {
        let message = format!("no part of the product ({PRODUCT}); add publish = false");
        return if is_published { vec![finding(message)] } else { Vec::new() };
    }
    let missing = FIELDS.into_iter().filter(|field| is_published && is_empty(&package[*field]));
    missing.map(|field| finding(format!("no {field}; users of the registry need it"))).collect()
}

fn is_empty(field: &Value) -> bool {
    match field {
        Value::String(text) => text.is_empty(),
        Value::Array(words) => words.is_empty(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(package: Value) -> Vec<String> {
        check(&[package]).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn missing_fields_of_a_published_crate_are_found() {
        let words = ["ext4"];
        let mut package = json!({
            "manifest_path": "crates/a/Cargo.toml", "publish": null, "description": "A crate", "license": "MIT",
            "readme": "README.md", "keywords": words, "categories": words,
        });
        assert!(messages(package.clone()).is_empty());
        package["readme"] = Value::Null;
        package["keywords"] = json!([]);
        assert_eq!(messages(package.clone()).len(), 2);
        package["publish"] = json!([]);
        assert!(messages(package).is_empty());
    }

    #[test]
    fn a_crate_that_is_no_part_of_the_product_is_not_published() {
        let package = |publish| json!({"manifest_path": "testing/a/Cargo.toml", "publish": publish});
        assert!(messages(package(json!([]))).is_empty());
        assert!(messages(package(Value::Null))[0].contains("publish = false"));
    }
}
