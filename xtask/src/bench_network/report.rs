//! The table of the comparison.

use super::rows::{Other, Row};
use crate::quantile::median;

/// Prints a line for each row.
pub struct Report;

impl Report {
    /// Prints the head of the table.
    pub fn new(runs: u32) -> Self {
        println!(
            "medians of {runs} runs each, in turn; the ratio is the median of the ratios of runs next to each other"
        );
        println!("{:<44} {:>12} {:>12} {:>7} {:>6}", "", "parext4", "other", "ratio", "goal");
        Self
    }

    /// Prints a row with its measured rates.
    pub fn add(&mut self, row: &Row, ours: &[f64], others: &[f64]) {
        let scale = match row.other {
            Other::Fio(_) => row.unit.scale_of_fio(),
            Other::Parext4(_) => 1.0,
        };
        let others: Vec<f64> = others.iter().map(|other| other / scale).collect();
        let ratios: Vec<f64> = ours.iter().zip(&others).map(|(ours, other)| ours / other).collect();
        let [ours, other, ratio] = [ours, &others, &ratios].map(median);
        let missed = if ratio < row.goal { " missed" } else { "" };
        println!("{:<44} {ours:>12.0} {other:>12.0} {ratio:>7.2} {:>6.2}{missed}", row.name, row.goal);
    }
}
