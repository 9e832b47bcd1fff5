//! Names without case, as directories with `EXT4_CASEFOLD_FL` compare and hash them.
//!
//! The folded form of a name is that of the kernel's `utf8_casefold` with Unicode 12.1
//! ("utf8nfdicf"):
//!
//! 1. Each character is replaced by its full case folding (statuses C and F of `CaseFolding.txt`),
//!    or else by its canonical decomposition, until neither applies.
//! 2. Combining marks are put in canonical order. A character that is ignored by default, such as
//!    U+200D or U+00AD, ends a run of marks, and is then removed.
//!
//! A name with bytes that are not UTF-8 has no folded form. A code point that Unicode 12.1 has not
//! assigned stands for itself. Case folding and decomposition of assigned code points never change,
//! so tables of later versions of Unicode give the same result for them. The result is part of the
//! on-disk format: with a different one names cannot be found.

#[cfg(feature = "casefold")]
mod assigned;
#[cfg(feature = "casefold")]
mod unicode;

/// Returns the folded form of a name, or `None` if it has none. Two names are equal without case if
/// their folded forms are equal.
///
/// The folded form of a name of 255 bytes has less than 1024 bytes. It is empty if all characters
/// are ignored.
#[must_use]
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase());
    }
    fold_unicode(str::from_utf8(name).ok()?)
}

#[cfg(feature = "casefold")]
fn fold_unicode(name: &str) -> Option<Vec<u8>> {
    Some(unicode::fold(name).into_bytes())
}

/// No volume with such names is opened.
#[cfg(not(feature = "casefold"))]
fn fold_unicode(_: &str) -> Option<Vec<u8>> {
    None
}

/// Returns true if `name` has the folded form `folded`, which [`fold`] returned. Like a comparison
/// with `fold(name)`, but faster for ASCII.
#[must_use]
pub fn folds_to(name: &[u8], folded: &[u8]) -> bool {
    if name.is_ascii() {
        // The folded form of ASCII is lower case.
        return name.len() == folded.len() && name.eq_ignore_ascii_case(folded);
    }
    fold(name).is_some_and(|own| own == folded)
}

#[cfg(all(test, feature = "casefold"))]
mod tests {
    use super::*;

    fn folded(name: &str) -> String {
        String::from_utf8(fold(name.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn names_that_differ_only_in_case_or_form_are_equal() {
        for (a, b) in [
            ("README", "readme"),
            ("straße", "STRASSE"),
            ("\u{1e9e}", "ss"),
            ("\u{130}", "i\u{307}"),
            ("ΟΔΟΣ", "οδος"),
            ("Å", "a\u{30a}"),
            ("\u{212b}", "å"),
            ("\u{212a}", "K"),
            ("한글", "\u{1112}\u{1161}\u{11ab}\u{1100}\u{1173}\u{11af}"),
            ("ﬃ", "FFI"),
            ("so\u{ad}ft", "S\u{200d}OFT"),
            ("\u{1fb7}", "α\u{342}ι"),
            ("e\u{323}\u{301}", "E\u{301}\u{323}"),
        ] {
            assert_eq!(folded(a), folded(b), "{a:?} {b:?}");
            assert!(folds_to(a.as_bytes(), &fold(b.as_bytes()).unwrap()));
        }
        for (a, b) in [("a", "b"), ("ı", "i"), ("ab", "abc"), ("e\u{301}\u{200d}\u{323}", "e\u{301}\u{323}")]
        {
            assert_ne!(folded(a), folded(b), "{a:?} {b:?}");
        }
        assert_eq!(folded("\u{200d}\u{ad}"), "");
    }

    #[test]
    fn some_names_have_no_folded_form() {
        // Not UTF-8, a surrogate, an overlong form, and a code point that is too large.
        let bad: [&[u8]; 4] = [b"a\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80"];
        for name in bad {
            assert_eq!(fold(name), None, "{name:?}");
        }
    }

    #[test]
    fn characters_of_later_versions_stand_for_themselves() {
        // A letter with a lower case, and a combining mark, both added in Unicode 14.
        assert_eq!(folded("A\u{2c2f}\u{323}"), "a\u{2c2f}\u{323}");
        assert_eq!(folded("e\u{1dfa}\u{323}"), "e\u{1dfa}\u{323}");
        assert_eq!(folded("\u{378}X\u{2065}"), "\u{378}x");
    }

    #[test]
    fn folded_forms_are_short() {
        let longest = ('\0'..=char::MAX)
            .filter_map(|c| fold(c.to_string().as_bytes()).map(|folded| folded.len() * 255 / c.len_utf8()))
            .max();
        assert!(longest.is_some_and(|len| len < 1024), "{longest:?}");
    }
}
