//! The little Markdown that a sentence of the specification holds: `*emphasis*` and code in backticks.

use super::escape;

/// The sentence without its marks.
pub(super) fn plain(sentence: &str) -> String {
    pieces(sentence).into_iter().map(|(_, text)| text).collect()
}

/// The sentence as HTML.
pub(super) fn html(sentence: &str) -> String {
    let piece = |(style, text): (Style, &str)| {
        let text = escape(text);
        match style {
            Style::Text => text,
            Style::Emphasis => format!("<em>{text}</em>"),
            Style::Code => format!("<code>{text}</code>"),
        }
    };
    pieces(sentence).into_iter().map(piece).collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    Text,
    Emphasis,
    Code,
}

/// The sentence in pieces of one style each, without the marks around them.
fn pieces(sentence: &str) -> Vec<(Style, &str)> {
    let mut found = Vec::new();
    let (mut text, mut from) = (sentence, 0);
    while let Some((start, mark)) =
        text.char_indices().skip_while(|(at, _)| *at < from).find(|(_, letter)| matches!(letter, '*' | '`'))
    {
        let (before, rest) = text.split_at(start);
        let Some((inner, after)) = rest.get(1..).and_then(|rest| marked(rest, mark)) else {
            // A product, or a star by itself.
            from = start + 1;
            continue;
        };
        let style = if mark == '*' { Style::Emphasis } else { Style::Code };
        found.extend([(Style::Text, before), (style, inner)]);
        (text, from) = (after, 0);
    }
    found.push((Style::Text, text));
    found.retain(|(_, text)| !text.is_empty());
    found
}

/// What is marked, and what comes after it. An emphasis begins and ends with something to read.
fn marked(text: &str, mark: char) -> Option<(&str, &str)> {
    let (inner, after) = text.split_once(mark)?;
    let is_blank = |letter: Option<char>| letter.is_none_or(char::is_whitespace);
    let open = mark == '*' && (is_blank(inner.chars().next()) || is_blank(inner.chars().last()));
    (!open && !inner.is_empty()).then_some((inner, after))
}

#[cfg(test)]
mod tests {
    use super::{html, plain};

    #[test]
    fn emphasis_and_code_are_shown_and_products_stay() {
        for (sentence, text, page) in [
            ("of path *p* alone.", "of path p alone.", "of path <em>p</em> alone."),
            ("*remote invalid* or *n*.", "remote invalid or n.", "<em>remote invalid</em> or <em>n</em>."),
            ("`a < b` holds.", "a < b holds.", "<code>a &lt; b</code> holds."),
            ("2 * 3 and *x*.", "2 * 3 and x.", "2 * 3 and <em>x</em>."),
            ("a ** b, one * and `.", "a ** b, one * and `.", "a ** b, one * and `."),
            ("``", "``", "``"),
            ("", "", ""),
            ("§ 2 × *ü*", "§ 2 × ü", "§ 2 × <em>ü</em>"),
        ] {
            assert_eq!((plain(sentence).as_str(), html(sentence).as_str()), (text, page));
        }
    }

    #[test]
    fn no_sentence_of_the_specification_shows_its_marks() {
        for (id, sentence) in super::super::sentences() {
            let (text, page) = (plain(&sentence), html(&sentence));
            assert!(!text.contains(['*', '`']) && !page.contains(['*', '`']), "{id}: {text}");
        }
    }
}
