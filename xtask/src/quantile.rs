//! Middles and scatter of measured values.

/// The value below which the part `part` of `values` lies, between two of them if need be; NaN if
/// there are none.
pub fn quantile(values: &[f64], part: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let place = part * values.len().saturating_sub(1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    match (values.get(low), values.get(high)) {
        (Some(low), Some(high)) => low + (high - low) * place.fract(),
        _ => f64::NAN,
    }
}

/// The value in the middle, or between the two there.
pub fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

#[cfg(test)]
mod tests {
    use super::{median, quantile};

    #[test]
    fn quantiles_lie_where_they_should() {
        assert!(median(&[]).is_nan());
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let parts = [0.0, 0.25, 0.75, 1.0].map(|part| quantile(&[50.0, 10.0, 40.0, 20.0, 30.0], part));
        assert_eq!(parts, [10.0, 20.0, 40.0, 50.0]);
    }
}
