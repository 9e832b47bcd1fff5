//! The random choices of a campaign, and what repeats them.

use anyhow::{Context, Result};
use fastrand::Rng;

/// As for the tests.
const VARIABLE: &str = "PAREXT4_STRESS_SEED";

/// Returns the source of all random choices of the campaign `name`, and prints the command that
/// repeats them. Their effect also depends on when the kernel and other processes run.
pub fn seeded(name: &str) -> Result<Rng> {
    let seed = match std::env::var(VARIABLE) {
        Ok(text) => text.parse().with_context(|| format!("{VARIABLE}={text} is not a number"))?,
        Err(_) => fastrand::u64(..),
    };
    println!("  {VARIABLE}={seed} cargo xtask {name} repeats the choices of this run");
    Ok(Rng::with_seed(seed))
}
