//! Room that text takes, estimated from above: the reader's font is not known.

/// Distance from one line of text to the next, in pixels.
pub fn line(size: i32) -> i32 {
    size + (size + 3) / 4
}

/// Pixels that a line of text takes at most in a common sans-serif font of that size. DejaVu Sans and Verdana, the
/// widest of those that viewers fall back to, are the measure.
pub fn width(text: &str, size: i32) -> i32 {
    let thousandths: i32 = text.chars().map(advance).sum();
    (thousandths * size + 999) / 1000
}

/// A character's width in thousandths of the font size.
fn advance(char: char) -> i32 {
    match char {
        '0'..='9' => 640,
        'i' | 'j' | 'l' | ' ' | '\u{a0}' | ',' | '.' | ':' | ';' | '\'' | '|' | '!' => 410,
        'f' | 'r' | 't' | '(' | ')' | '[' | ']' | '-' | '/' | '\\' | '"' => 470,
        'm' | 'w' | 'M' | 'W' | '@' | '%' => 1080,
        '=' | '+' | '<' | '>' | '~' | '^' | '#' | '&' | '·' | '×' => 840,
        'a'..='z' => 650,
        '\u{20}'..='\u{7e}' => 800,
        '…' => 1000,
        // Han and Hangul are as wide as high, emoji wider.
        _ => 1400,
    }
}

/// The text, its end replaced by `…` when it is wider than `room`.
pub fn cut(text: &str, size: i32, room: i32) -> String {
    if width(text, size) <= room {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut left = room * 1000 - advance('…') * size;
    for char in text.chars() {
        left -= advance(char) * size;
        if left < 0 {
            break;
        }
        kept.push(char);
    }
    kept + "…"
}

/// How many words of the given widths go on each line of `room` pixels, `space` between two of them. A word that is
/// wider has a line to itself.
pub fn wrap(words: &[i32], space: i32, room: i32) -> Vec<usize> {
    let mut lines: Vec<usize> = Vec::new();
    let mut used = 0;
    for &word in words {
        match lines.last_mut() {
            Some(line) if used + space + word <= room => {
                *line += 1;
                used += space + word;
            }
            _ => {
                lines.push(1);
                used = word;
            }
        }
    }
    lines
}

/// The text in lines of `room` pixels, broken at spaces; a longer word is cut.
pub fn broken(text: &str, size: i32, room: i32) -> Vec<String> {
    let words: Vec<String> = text.split(' ').map(|word| cut(word, size, room)).collect();
    lines(&words, " ", size, room)
}

/// Words in lines of `room` pixels, with `between` between two on a line.
pub fn lines(words: &[String], between: &str, size: i32, room: i32) -> Vec<String> {
    let widths: Vec<i32> = words.iter().map(|word| width(word, size)).collect();
    let mut rest = words;
    let lines = wrap(&widths, width(between, size), room).into_iter().map(|count| {
        let (line, others) = rest.split_at(count);
        rest = others;
        line.join(between)
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_fill_lines_and_a_wide_word_stands_alone() {
        assert_eq!(wrap(&[10, 10, 10, 40, 10], 5, 25), [2, 1, 1, 1]);
        assert_eq!(wrap(&[], 5, 25), [0usize; 0]);
    }

    #[test]
    fn a_text_that_is_too_wide_ends_in_an_ellipsis_and_fits() {
        let text = "a machine with a name as long as the page is wide";
        let short = cut(text, 12, 120);
        assert!(short.ends_with('…') && width(&short, 12) <= 120, "{short}");
        assert_eq!(cut("short", 12, 120), "short");
    }
}
