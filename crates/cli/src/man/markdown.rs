//! Converts the documents in `docs` to manual pages, so that there is one text of each.
//!
//! Reads the part of Markdown that they use: headings, paragraphs, lists, tables, code blocks, and
//! in them code, bold text and links.

use std::fmt::Write;

/// Documents that are manual pages, and those pages.
const PAGES: [(&str, &str); 3] = [
    ("json.md", "\\fBparext4\\-json\\fR(5)"),
    ("mount-options.md", "\\fBmount.fuse.parext4\\fR(8)"),
    ("network.md", "\\fBparext4\\-network\\fR(7)"),
];

/// Returns the text of a document below its title in the language of manual pages (man(7)). `first`
/// is the heading of what precedes its first heading.
pub fn to_roff(document: &str, first: &str) -> String {
    let mut page = format!(".ad l\n.SH {}\n", quoted(first));
    let mut lines = document.lines().filter(|line| !line.starts_with("# ")).peekable();
    while let Some(line) = lines.next() {
        if let Some(heading) = line.strip_prefix("## ") {
            put(&mut page, ".SH", &quoted(&heading.to_uppercase()));
        } else if let Some(heading) = line.strip_prefix("### ") {
            put(&mut page, ".SS", &quoted(heading));
        } else if line.starts_with("```") {
            put(&mut page, ".PP\n.EX", "");
            lines.by_ref().take_while(|line| !line.starts_with("```")).for_each(|line| {
                put(&mut page, &start_safe(&escaped(line)), "");
            });
            put(&mut page, ".EE", "");
        } else if line.starts_with("| ") {
            let mut table = vec![cells(line)];
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                table.push(cells(row));
            }
            put_table(&mut page, &table);
        } else if line.is_empty() {
            if lines.peek().is_some_and(|next| is_text(next)) {
                put(&mut page, ".PP", "");
            }
        } else {
            let text = match line.strip_prefix("* ") {
                Some(item) => {
                    put(&mut page, ".IP \\(bu 2", "");
                    item
                }
                None => line,
            };
            put(&mut page, &start_safe(&inline(text.trim_start())), "");
        }
    }
    page
}

/// Adds a line: a request with its argument.
fn put(page: &mut String, request: &str, argument: &str) {
    let gap = if argument.is_empty() { "" } else { " " };
    // A string takes any text.
    let _ = writeln!(page, "{request}{gap}{argument}");
}

/// Returns true for the first line of a paragraph.
fn is_text(line: &str) -> bool {
    let others = ["#", "```", "| ", "* "];
    !line.is_empty() && !others.iter().any(|start| line.starts_with(start))
}

/// Adds an item for each row: its first cell, and the other ones below it, with their headings if
/// there are several.
fn put_table(page: &mut String, table: &[Vec<String>]) {
    let [head, _, rows @ ..] = table else { return };
    for row in rows {
        let Some((first, rest)) = row.split_first() else { continue };
        put(page, ".TP", "");
        put(page, &start_safe(&inline(first)), "");
        for (nth, (heading, cell)) in head[1..].iter().zip(rest).enumerate() {
            if nth > 0 {
                put(page, ".br", "");
            }
            let label = if rest.len() > 1 { format!("{}: ", inline(heading)) } else { String::new() };
            put(page, &start_safe(&(label + &inline(cell))), "");
        }
    }
}

/// Splits a row of a table.
fn cells(row: &str) -> Vec<String> {
    const BAR: &str = "\u{1}";
    let row = row.replace("\\|", BAR);
    let cells = row.trim_matches('|').split('|');
    cells.map(|cell| cell.trim().replace(BAR, "|")).collect()
}

/// Converts code, bold text and links within a line. A link to a document that is a manual page
/// becomes the name of the page.
fn inline(text: &str) -> String {
    let mut roff = String::new();
    for (nth, part) in text.split('`').enumerate() {
        match nth % 2 {
            // A URL may be longer than a line.
            1 => roff += &format!("\\fB{}\\fR", escaped(part).replace('&', "&\\:").replace(']', "]\\:")),
            _ => roff += &bold(&links(part)),
        }
    }
    roff
}

/// Escapes text, and converts the links in it.
fn links(text: &str) -> String {
    let mut roff = String::new();
    let mut rest = text;
    while let Some((before, name, target, after)) = link(rest) {
        let page = PAGES.iter().find(|(document, _)| target.starts_with(document));
        roff += &escaped(before);
        roff += &page.map_or_else(|| escaped(name), |(_, page)| (*page).to_owned());
        rest = after;
    }
    roff + &escaped(rest)
}

/// Returns what precedes the first link, its text, its target, and what follows it.
fn link(text: &str) -> Option<(&str, &str, &str, &str)> {
    let (head, tail) = text.split_once("](")?;
    let (before, name) = head.rsplit_once('[')?;
    let (target, after) = tail.split_once(')')?;
    Some((before, name, target, after))
}

/// Converts pairs of `**`.
fn bold(text: &str) -> String {
    let parts = text.split("**").enumerate();
    parts.map(|(nth, part)| if nth % 2 == 1 { format!("\\fB{part}\\fR") } else { part.to_owned() }).collect()
}

/// Escapes what is no plain text in a manual page.
fn escaped(text: &str) -> String {
    let mut roff = String::new();
    for letter in text.chars() {
        match letter {
            '\\' => roff += "\\e",
            '-' => roff += "\\-",
            '\'' => roff += "\\(aq",
            '^' => roff += "\\(ha",
            '~' => roff += "\\(ti",
            _ if letter.is_ascii() => roff.push(letter),
            _ => roff += &format!("\\[u{:04X}]", u32::from(letter)),
        }
    }
    roff
}

/// Returns an argument of a request.
fn quoted(text: &str) -> String {
    format!("\"{}\"", inline(text).replace('"', "\\(dq"))
}

/// Returns a line that is no request.
fn start_safe(line: &str) -> String {
    if line.starts_with('.') { format!("\\&{line}") } else { line.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::to_roff;

    #[test]
    fn documents_become_manual_pages() {
        let document = "# Title\n\nText `a-b` and **bold**,\nsee [JSON](json.md) [below](#x).\n\n## Part\n\n* one\n  more\n* two\n\n\
            | name | x | y |\n|---|---|---|\n| `a=b\\|c` | 1 | .2 |\n\n```sh\n.run 'x' \\\n```\n";
        let page = ".ad l\n.SH \"FIRST\"\n.PP\nText \\fBa\\-b\\fR and \\fBbold\\fR,\nsee \\fBparext4\\-json\\fR(5) below.\n.SH \"PART\"\n\
            .IP \\(bu 2\none\nmore\n.IP \\(bu 2\ntwo\n.TP\n\\fBa=b|c\\fR\nx: 1\n.br\ny: .2\n.PP\n.EX\n\\&.run \\(aqx\\(aq \\e\n.EE\n";
        assert_eq!(to_roff(document, "FIRST"), page);
    }
}
