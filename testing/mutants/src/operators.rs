//! The operators of mutation: what replaces an operator of the language, a condition, and the value
//! of a function.

use syn::{BinOp, GenericArgument, PathArguments, ReturnType, Type};

/// Returns the operators in place of `op`.
pub fn instead_of(op: &BinOp) -> &'static [&'static str] {
    match op {
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["/"],
        BinOp::Div(_) => &["*"],
        BinOp::Rem(_) => &["/"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::BitXor(_) => &["&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::BitXorAssign(_) => &["|="],
        _ => &[],
    }
}

/// Returns true if `op` assigns.
pub fn assigns(op: &BinOp) -> bool {
    matches!(
        op,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

/// Returns true if `op` compares, so that replacing it also negates a condition.
pub fn compares(op: &BinOp) -> bool {
    matches!(op, BinOp::Eq(_) | BinOp::Ne(_) | BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_))
}

/// Returns the values that a function of this type returns at once. Empty if the type has no simple
/// value.
pub fn values_of(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, output) => values(output),
    }
}

/// Returns true if a function of this type returns no value, or nothing but success or an error.
pub fn is_unit_result(output: &ReturnType) -> bool {
    matches!(output, ReturnType::Type(_, output) if values(output) == ["Ok(())"])
}

fn values(output: &Type) -> Vec<String> {
    let fixed = |values: &[&str]| values.iter().map(|value| (*value).to_owned()).collect();
    match output {
        Type::Tuple(tuple) if tuple.elems.is_empty() => fixed(&["()"]),
        Type::Path(path) => {
            let Some(last) = path.path.segments.last() else { return Vec::new() };
            match last.ident.to_string().as_str() {
                "bool" => fixed(&["true", "false"]),
                "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" | "isize" => {
                    fixed(&["0", "1"])
                }
                "Option" => fixed(&["None"]),
                "Vec" => fixed(&["Vec::new()"]),
                "Result" => {
                    let inner = first_argument(&last.arguments).map(values).unwrap_or_default();
                    inner.iter().map(|value| format!("Ok({value})")).collect()
                }
                _ => Vec::new(),
            }
        }
        _ => Vec::new(),
    }
}

fn first_argument(arguments: &PathArguments) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = arguments else { return None };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(argument) => Some(argument),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::{is_unit_result, values_of};

    #[test]
    fn types_have_their_simple_values() {
        let values = |output: &str| values_of(&syn::parse_str(output).unwrap()).join(" ");
        assert_eq!(values(""), "");
        assert_eq!(values("-> bool"), "true false");
        assert_eq!(values("-> Result<Option<u8>, Error>"), "Ok(None)");
        assert_eq!(values("-> io::Result<()>"), "Ok(())");
        assert_eq!(values("-> &str"), "");
        assert!(is_unit_result(&syn::parse_str("-> Result<()>").unwrap()));
        assert!(!is_unit_result(&syn::parse_str("-> Result<bool>").unwrap()));
    }
}
