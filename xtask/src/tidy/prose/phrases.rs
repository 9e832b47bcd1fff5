//! The phrases that the prose of this project avoids, each with what to write in its place.

use regex::{Regex, RegexSet};

/// A pattern that no prose may contain.
struct Phrase {
    /// A regular expression, with the words around that exceptions need. Case does not matter.
    pattern: &'static str,
    /// A match that this expression matches as well is no finding. Empty: no exception.
    except: &'static str,
    /// The words to write in its place.
    mend: &'static str,
}

/// The phrases, ready to search.
pub struct Phrases {
    /// All patterns in one automaton, which rules most texts out in one pass.
    any: RegexSet,
    each: Vec<(Regex, Option<Regex>)>,
}

const fn phrase(pattern: &'static str, except: &'static str, mend: &'static str) -> Phrase {
    Phrase { pattern, except, mend }
}

/// All of them.
const PHRASES: &[Phrase] = &[
    phrase(
        r"(\w+,? )?\bwho(ever|m)?\b",
        r"^(user|users|people|readers|maintainers|administrator|administrators|root),? who$",
        "name the actor: the writer, the caller, the committer, the thread that ...",
    ),
    phrase(
        r"\b(some|any|every|no)(body|one)\b( else)?",
        "",
        "name the actor: another thread, any caller, no waiter",
    ),
    phrase(
        r"(\b(the|than|and|among) )?\bothers\b",
        r"^(the|among) others",
        "name them: other threads, other inodes, the rest of the pages",
    ),
    phrase(
        r"\bthose\b( (who|that|which|whose|of|in|under|with|without|at|on|from|for|to|by|are|were|is|it|they|before|after|not|alone|among|only)\b|[.,;:)])",
        "",
        "repeat the noun: the pages that ..., the writers of ...",
    ),
    phrase(
        r"\bso (many|much|few|little)\b( \w+)?( \w+)?( \w+)?",
        r" that\b",
        "state the limit with its unit: at most 128 ranges",
    ),
    phrase(r"\ba few\b", "", "state the number or the limit"),
    phrase(r"\b(lets?|letting) go\b( of)?", "", "releases, drops, unpins"),
    phrase(
        r"\b(gives?|gave|given|giving|hands?|handed|handing)( it| them| that| this| these)? back\b",
        "",
        "releases, returns, frees, unpins",
    ),
    phrase(r"\b(come|comes|came|coming) upon\b", "", "meets, finds"),
    phrase(r"\b(come|comes|came|coming) into being\b", "", "is created, is read in, is inserted"),
    phrase(r"\b(come|comes|came|coming) by( here)?\b", "", "passes, runs this"),
    phrase(r"\b(is|are|was|were|be|been) had\b", "", "is held, is acquired, exists"),
    phrase(
        r"((left|leave|leaves|leaving|fall|falls|falling|fell|lag|lags|lagging)( \w+)? )?\b(write-|read-)?behind\b",
        r"^(left|leave|fall|fell|lag)|-behind$",
        "after, past (an offset, the end of the file), below (a layer)",
    ),
    phrase(r"\bin front of\b", "", "before"),
    phrase(
        r"\blook(s|ed|ing)?\b([- ]?(up|ups|ahead|like|alike)\b)?( \w+)?",
        r"(?i)look(s|ed|ing)?[- ]?(up|ups|ahead|like|alike)\b",
        "checks, reads, searches, examines",
    ),
    phrase(
        r"(^|[.:;] )(Says|Tells) (whether|how|what|where|which|if)\b",
        "",
        "Returns true if ..., Returns the ...",
    ),
    phrase(
        r"(^|[.:;] )The same(,|\.|$| (of|in|through|without|with|but|does|by|from|after|before|under)\b)",
        "",
        "say what it does, or: Like [`item`], but ...",
    ),
    phrase(
        r"(^|\. )What (was|is|were|are|has|had|it|they|the)\b[^?]{0,160}[.?]?",
        r"\?$",
        "name the thing: the pages that were read, the bytes ...",
    ),
    phrase(r"\brubbish\b", "", "stale bytes, arbitrary contents"),
    phrase(r"\bheed(s|ed|ing)?\b", "", "respects, follows, obeys"),
    phrase(r"\b(anew|whence|thence|hither|thither|hitherto)\b", "", "again, from which, until now"),
    phrase(r"\bfor want of\b", "", "because there is no ..."),
    phrase(r"\b(ride|rides|riding|rode) along\b", "", "is written with, is added to"),
    phrase(r"/(home|root)/\w+|\bissue #?\d+\b", "", "nothing: a reader cannot find it"),
    phrase(r"\bhear(s|d)? of\b", "", "is notified of, receives"),
];

impl Phrases {
    /// Compiles the list.
    pub fn new() -> Self {
        let regex = |pattern: &str| Regex::new(&anchored(pattern)).expect("a pattern of the list is valid");
        let except = |pattern: &str| (!pattern.is_empty()).then(|| regex(pattern));
        let any = RegexSet::new(PHRASES.iter().map(|phrase| anchored(phrase.pattern)));
        Self {
            any: any.expect("the patterns of the list are valid"),
            each: PHRASES.iter().map(|phrase| (regex(phrase.pattern), except(phrase.except))).collect(),
        }
    }

    /// Returns the offset and the text of each excluded phrase in `text`, and the words to write in
    /// its place.
    pub fn find<'a>(&self, text: &'a str) -> Vec<(usize, &'a str, &'static str)> {
        let mut found = Vec::new();
        for index in self.any.matches(text) {
            let (pattern, except) = &self.each[index];
            let hits = pattern.find_iter(text).map(|hit| (hit.start(), hit.as_str(), PHRASES[index].mend));
            found.extend(hits.filter(|hit| except.as_ref().is_none_or(|except| !except.is_match(hit.1))));
        }
        found
    }
}

/// The pattern without regard to case. Word boundaries are of ASCII words, which the fast automaton
/// can tell.
fn anchored(pattern: &str) -> String {
    format!("(?i){}", pattern.replace(r"\b", r"(?-u:\b)"))
}
