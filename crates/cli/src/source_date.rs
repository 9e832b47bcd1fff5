//! `SOURCE_DATE_EPOCH`: the time of builds that give the same bytes each time
//! (reproducible-builds.org).

use anyhow::{Context, Result};

/// Returns the time of `SOURCE_DATE_EPOCH` in seconds since 1970; `None` if it is not set.
pub fn get() -> Result<Option<u32>> {
    let Some(value) = std::env::var_os("SOURCE_DATE_EPOCH").filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let seconds = value.to_str().and_then(|value| value.parse().ok());
    Ok(Some(
        seconds.with_context(|| format!("SOURCE_DATE_EPOCH={}: not a time in seconds", value.display()))?,
    ))
}
