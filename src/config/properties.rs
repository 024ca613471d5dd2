//! Java's properties syntax: `key=value` lines with comments, continued lines and escapes. Text is
//! UTF-8. What the keys mean is not known here.

/// One entry of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Property {
    /// The line it begins on, from 1.
    pub(super) line: usize,
    pub(super) key: String,
    pub(super) value: String,
}

/// Reads a whole file. An error is a line number and what is wrong there.
pub(super) fn parse(text: &str) -> Result<Vec<Property>, (usize, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut properties = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((at, first)) = lines.next() {
        let first = first.trim_start();
        if first.is_empty() || first.starts_with(['#', '!']) {
            continue;
        }
        let mut logical = first.to_owned();
        while continues(&logical) {
            logical.pop();
            let Some((_, next)) = lines.next() else { break };
            logical.push_str(next.trim_start());
        }
        let (key, value) = split(&logical);
        let key = unescape(key).map_err(|reason| (at + 1, reason))?;
        let value = unescape(value).map_err(|reason| (at + 1, reason))?;
        // Java keeps blanks at the end of a value, and Kafka trims them for every type.
        properties.push(Property {
            line: at + 1,
            key,
            value: value.trim().to_owned(),
        });
    }
    Ok(properties)
}

/// An odd number of backslashes at the end joins the next line.
fn continues(line: &str) -> bool {
    line.bytes().rev().take_while(|&byte| byte == b'\\').count() % 2 == 1
}

/// The key ends at the first `=`, `:` or blank that is not escaped.
fn split(line: &str) -> (&str, &str) {
    let mut escaped = false;
    let end = line.find(|c: char| {
        let ends = !escaped && (matches!(c, '=' | ':') || c.is_whitespace());
        escaped = !escaped && c == '\\';
        ends
    });
    let Some(end) = end else { return (line, "") };
    let rest = line[end..].trim_start();
    (
        &line[..end],
        rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start(),
    )
}

fn unescape(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    let mut units = Vec::new();
    loop {
        let next = chars.next();
        let unit = match next {
            Some('\\') => match chars.next() {
                Some('u') => Some(utf16_unit(&mut chars)?),
                other => {
                    flush(&mut units, &mut out)?;
                    out.extend(other.map(|c| match c {
                        't' => '\t',
                        'n' => '\n',
                        'r' => '\r',
                        'f' => '\u{c}',
                        c => c,
                    }));
                    continue;
                }
            },
            _ => None,
        };
        match unit {
            Some(unit) => units.push(unit),
            None => {
                flush(&mut units, &mut out)?;
                match next {
                    Some(c) => out.push(c),
                    None => return Ok(out),
                }
            }
        }
    }
}

fn utf16_unit(chars: &mut std::str::Chars<'_>) -> Result<u16, String> {
    let digits: String = chars.by_ref().take(4).collect();
    let hex = digits.len() == 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u16::from_str_radix(&digits, 16) {
        Ok(unit) if hex => Ok(unit),
        _ => Err(format!(
            "\\u{digits}: four hexadecimal digits belong after \\u"
        )),
    }
}

/// Surrogate pairs come as two escapes, so units are gathered before they become text.
fn flush(units: &mut Vec<u16>, out: &mut String) -> Result<(), String> {
    let text = String::from_utf16(units).map_err(|_| "half of a surrogate pair".to_owned())?;
    units.clear();
    out.push_str(&text);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        parse(text)
            .unwrap()
            .into_iter()
            .map(|p| (p.key, p.value))
            .collect()
    }

    fn one(text: &str) -> (String, String) {
        let mut all = pairs(text);
        assert_eq!(all.len(), 1, "{text:?}");
        all.remove(0)
    }

    #[test]
    fn keys_end_at_equals_colon_or_blank() {
        for text in [
            "a.b=c d",
            "a.b: c d",
            "a.b c d",
            "  a.b = c d  ",
            "a.b\t:c d\r\n",
        ] {
            assert_eq!(one(text), ("a.b".into(), "c d".into()), "{text:?}");
        }
        assert_eq!(one("a"), ("a".into(), String::new()));
        assert_eq!(one("a="), ("a".into(), String::new()));
        assert_eq!(one("a==b"), ("a".into(), "=b".into()));
        assert_eq!(one(r"a\=b\ c=d"), ("a=b c".into(), "d".into()));
    }

    #[test]
    fn comments_and_empty_lines_are_skipped() {
        let text = "# C:\\users are no escape \\u\n! another\n\n   \n  # indented \\\na=1\n";
        assert_eq!(one(text), ("a".into(), "1".into()));
    }

    #[test]
    fn a_backslash_at_the_end_joins_the_next_line() {
        assert_eq!(one("a=b,\\\n   c,\\\n\td"), ("a".into(), "b,c,d".into()));
        assert_eq!(one("a=b\\"), ("a".into(), "b".into()));
        assert_eq!(pairs("a=b\\\\\nc=d").len(), 2);
    }

    #[test]
    fn escapes_are_read() {
        assert_eq!(one(r"a=\u00e9\t\q\\"), ("a".into(), "é\tq\\".into()));
        assert_eq!(one(r"a=\ud83d\ude80!"), ("a".into(), "🚀!".into()));
        for text in [r"a=\u12", r"a=\u+123", r"a=\ud83d", r"a=\ud83dx"] {
            assert_eq!(parse(&format!("\n{text}")).unwrap_err().0, 2, "{text}");
        }
    }

    #[test]
    fn entries_know_their_line() {
        let all = parse("a=1\\\n2\n\nb=3").unwrap();
        assert_eq!((all[0].line, all[1].line), (1, 4));
    }
}
