//! Conversions of counts and offsets to narrower types, as in `parext4_format`.

pub(crate) use parext4_format::convert::{saturating_u32, to_usize};
