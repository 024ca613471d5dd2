//! Topic patterns: the regular expressions of KIP-848, compiled once and matched against whole topic names.
//!
//! Kafka matches with RE2/J. This room reads RE2's syntax and writes that of the crate `regex`, which matches in linear
//! time as RE2 does. What is read differently there (`\Q…\E`, octal escapes, set operators in brackets, a `{` that
//! counts nothing) is written out; what RE2 refuses (look-around, back-references, `\C`, flags other than `imsU`,
//! doubled repetition, counts over 1,000) is refused here. Left over: Unicode classes may have a few more names than
//! RE2/J knows, and `\d`, `\w`, `\s`, `\b` know more than ASCII; topic names are ASCII, so neither shows.

use regex::{Regex, RegexBuilder};

use super::types::{TopicName, Topics};

/// The longest pattern, in bytes. Long enough to list a few hundred names.
pub const PATTERN_BYTES_MAX: usize = 10_000;
/// What a compiled pattern, and its cache of states while matching, may take.
const COMPILED_BYTES_MAX: usize = 2 << 20;
/// As in RE2.
const REPEAT_MAX: u32 = 1_000;

/// A compiled pattern.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// What is wrong with it, in words for the client (INVALID_REGULAR_EXPRESSION).
    pub fn new(pattern: &str) -> Result<Self, String> {
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(format!(
                "the pattern has {} bytes; at most {PATTERN_BYTES_MAX} are allowed",
                pattern.len()
            ));
        }
        let translated = translate(pattern)?;
        let compile = |text: &str| {
            RegexBuilder::new(text)
                .size_limit(COMPILED_BYTES_MAX)
                .dfa_size_limit(COMPILED_BYTES_MAX)
                .build()
                .map_err(|error| match error {
                    regex::Error::CompiledTooBig(_) => {
                        "the pattern is too large when compiled".to_owned()
                    }
                    // The message is a drawing of several lines; its last says what is wrong.
                    error => error
                        .to_string()
                        .lines()
                        .last()
                        .unwrap_or_default()
                        .trim()
                        .to_owned(),
                })
        };
        // Alone first: `a)(b` would be a pattern between the brackets of the whole-name match.
        compile(&translated)?;
        compile(&format!("^(?:{translated})$")).map(Self)
    }

    /// Whether the whole name matches.
    #[must_use]
    pub fn matches(&self, topic: &str) -> bool {
        self.0.is_match(topic)
    }

    /// The topics that match, in the order of their names. Internal ones match like all others, as in Kafka.
    #[must_use]
    pub fn resolve(&self, topics: &Topics) -> Vec<TopicName> {
        topics
            .iter()
            .map(|(name, _)| name)
            .filter(|name| self.matches(name))
            .cloned()
            .collect()
    }
}

/// Reads RE2's syntax, writes that of the crate `regex`.
fn translate(pattern: &str) -> Result<String, String> {
    let mut reader = Translator {
        rest: pattern,
        out: String::with_capacity(pattern.len() + 8),
    };
    // Whether the last thing was a repetition (that a `?` may have made lazy).
    let mut repeated = false;
    while let Some(c) = reader.next() {
        match c {
            '*' | '+' | '?' => {
                reader.repetition(&mut repeated, c.encode_utf8(&mut [0; 4]))?;
                continue;
            }
            '{' => {
                if let Some(count) = reader.repeat_count()? {
                    reader.repetition(&mut repeated, &count)?;
                    continue;
                }
                reader.literal('{');
            }
            '[' => reader.class()?,
            '(' => reader.group()?,
            '\\' => reader.escape()?,
            // Outside brackets these two are plain in RE2 and here; escaped they are plain everywhere.
            ']' | '}' => reader.literal(c),
            _ => reader.out.push(c),
        }
        repeated = false;
    }
    Ok(reader.out)
}

struct Translator<'a> {
    rest: &'a str,
    out: String,
}

impl<'a> Translator<'a> {
    fn next(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    fn eat(&mut self, prefix: &str) -> bool {
        let rest = self.rest.strip_prefix(prefix);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// A character that stands for itself. Written in hexadecimal unless a letter or digit, so nothing is special.
    fn literal(&mut self, c: char) {
        if c.is_alphanumeric() || c == '_' {
            self.out.push(c);
        } else {
            self.out.push_str(&format!("\\x{{{:x}}}", u32::from(c)));
        }
    }

    /// `*`, `+`, `?` or a count, with the `?` that makes it lazy.
    fn repetition(&mut self, repeated: &mut bool, operator: &str) -> Result<(), String> {
        if *repeated {
            return Err(format!("a repetition of a repetition: {operator}"));
        }
        self.out.push_str(operator);
        // Lazy or not, the same whole names match.
        self.eat("?");
        *repeated = true;
        Ok(())
    }

    /// `n}`, `n,}` or `n,m}` after a `{`; `None`, and nothing read, if it is none of these and so a plain brace.
    fn repeat_count(&mut self) -> Result<Option<String>, String> {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let Some((inside, after)) = self.rest.split_once('}') else {
            return Ok(None);
        };
        let (least, most) = inside.split_once(',').unwrap_or((inside, inside));
        if !is_number(least) || !(most.is_empty() || is_number(most)) {
            return Ok(None);
        }
        let count = |text: &str| text.parse().ok().filter(|n| *n <= REPEAT_MAX);
        let (low, high) = (
            count(least),
            if most.is_empty() {
                Some(REPEAT_MAX)
            } else {
                count(most)
            },
        );
        match (low, high) {
            (Some(low), Some(high)) if low <= high => {}
            _ => {
                return Err(format!(
                    "the repetition {{{inside}}} is not within 0 to {REPEAT_MAX}"
                ));
            }
        }
        self.rest = after;
        Ok(Some(format!("{{{inside}}}")))
    }

    /// After a `(`: a plain group, a named one, or flags.
    fn group(&mut self) -> Result<(), String> {
        self.out.push('(');
        if !self.eat("?") {
            return Ok(());
        }
        self.out.push('?');
        // A name after `P<` or `<`; `<=` and `<!` are refused when compiled, as look-behind.
        if self.rest.starts_with(['P', '<']) {
            return Ok(());
        }
        let (flags, _) = self.rest.split_once([':', ')']).unwrap_or((self.rest, ""));
        match flags
            .chars()
            .find(|flag| !matches!(flag, 'i' | 'm' | 's' | 'U' | '-'))
        {
            Some(strange) => Err(format!(
                "a group cannot begin with (?{strange}: no look-around, flags are i, m, s, U"
            )),
            None => Ok(()),
        }
    }

    /// After a `\` outside brackets.
    fn escape(&mut self) -> Result<(), String> {
        if self.eat("Q") {
            let (text, rest) = self.rest.split_once("\\E").unwrap_or((self.rest, ""));
            self.rest = rest;
            text.chars().for_each(|c| self.literal(c));
            return Ok(());
        }
        for assertion in ["A", "z", "b", "B"] {
            if self.eat(assertion) {
                self.out.push('\\');
                self.out.push_str(assertion);
                // `\b{start}` means something here; in RE2 the brace is plain.
                if self.rest.starts_with('{') {
                    self.out.push_str("(?:)");
                }
                return Ok(());
            }
        }
        if !self.class_escape()? {
            let c = self.character_escape()?;
            self.literal(c);
        }
        Ok(())
    }

    /// After a `\`: `\d`, `\pL`, `\p{Greek}` and the like, copied.
    fn class_escape(&mut self) -> Result<bool, String> {
        match self.rest.chars().next() {
            Some(c @ ('d' | 'D' | 's' | 'S' | 'w' | 'W')) => {
                self.next();
                self.out.extend(['\\', c]);
            }
            Some(c @ ('p' | 'P')) => {
                self.next();
                let name = if self.eat("{") {
                    let (name, rest) = self
                        .rest
                        .split_once('}')
                        .ok_or_else(|| format!("\\{c}{{ is not closed"))?;
                    self.rest = rest;
                    name.to_owned()
                } else {
                    self.next()
                        .ok_or_else(|| format!("\\{c} without a class"))?
                        .to_string()
                };
                self.out.push_str(&format!("\\{c}{{{name}}}"));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// After a `\`: one character.
    fn character_escape(&mut self) -> Result<char, String> {
        let c = self.next().ok_or("the pattern ends with a \\")?;
        let octal = |c: char| c.to_digit(8);
        Ok(match c {
            'a' => '\x07',
            'f' => '\x0c',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\x0b',
            'x' => self.hexadecimal()?,
            // One digit alone, other than 0, would be a back-reference.
            '1'..='7' if !self.rest.starts_with(|c| octal(c).is_some()) => {
                return Err(format!("\\{c}: there are no back-references"));
            }
            '0'..='7' => {
                let mut code = octal(c).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = self.rest.chars().next().and_then(octal) else {
                        break;
                    };
                    self.next();
                    code = code * 8 + digit;
                }
                char::from_u32(code).ok_or("an octal escape of no character")?
            }
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => c,
            c => return Err(format!("unknown escape \\{c}")),
        })
    }

    /// `41` or `{10FFFF}` after `\x`.
    fn hexadecimal(&mut self) -> Result<char, String> {
        let digits = if self.eat("{") {
            let (digits, rest) = self.rest.split_once('}').ok_or("\\x{ is not closed")?;
            self.rest = rest;
            digits
        } else {
            let (digits, rest) = self
                .rest
                .split_at_checked(2)
                .ok_or("\\x needs two digits")?;
            self.rest = rest;
            digits
        };
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(format!("\\x{digits} is no hexadecimal number"));
        }
        u32::from_str_radix(digits, 16)
            .ok()
            .and_then(char::from_u32)
            .ok_or_else(|| format!("\\x{{{digits}}} is no character"))
    }

    /// After a `[`: everything up to the closing bracket. No nesting, no set operators: `[`, `&&`, `--`, `~~` are plain.
    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        let mut first = true;
        while first || !self.eat("]") {
            first = false;
            if self.rest.starts_with("[:")
                && let Some(end) = self.rest.find(":]")
            {
                let (name, rest) = self.rest.split_at(end + 2);
                self.out.push_str(name);
                self.rest = rest;
                continue;
            }
            if let Some(escaped) = self.rest.strip_prefix('\\') {
                let before = std::mem::replace(&mut self.rest, escaped);
                if self.class_escape()? {
                    continue;
                }
                self.rest = before;
            }
            let low = self.class_character()?;
            self.literal(low);
            if self.rest.starts_with('-') && !self.rest.starts_with("-]") {
                self.next();
                let high = self.class_character()?;
                if high < low {
                    return Err(format!("the range {low}-{high} runs backwards"));
                }
                self.out.push('-');
                self.literal(high);
            }
        }
        self.out.push(']');
        Ok(())
    }

    fn class_character(&mut self) -> Result<char, String> {
        match self.next().ok_or("a [ is not closed")? {
            '\\' => self.character_escape(),
            c => Ok(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::group::types::{Topic, TopicId};

    fn matching<'a>(pattern: &str, names: &[&'a str]) -> Vec<&'a str> {
        let pattern = Pattern::new(pattern).unwrap();
        names
            .iter()
            .copied()
            .filter(|name| pattern.matches(name))
            .collect()
    }

    #[test]
    fn the_whole_name_must_match() {
        assert_eq!(
            matching("ct-rx", &["ct-rx", "ct-rx-a", "a-ct-rx"]),
            ["ct-rx"]
        );
        assert_eq!(matching("a|ab", &["a", "ab", "abc", "b"]), ["a", "ab"]);
        assert_eq!(
            matching("(?i)orders-[0-9]+", &["Orders-7", "orders-"]),
            ["Orders-7"]
        );
        assert_eq!(matching("", &["", "a"]), [""]);
        assert_eq!(matching("^a$|b", &["a", "b"]), ["a", "b"]);
    }

    #[test]
    fn what_re2_reads_differently_is_read_as_re2_does() {
        assert_eq!(
            matching(r"\Qa.b\E.*", &["a.b", "axb", "a.bc"]),
            ["a.b", "a.bc"]
        );
        assert_eq!(matching(r"a\Q.(", &["a.(", "ax("]), ["a.("]);
        assert_eq!(matching(r"\101\x42\x{43}", &["ABC"]), ["ABC"]);
        let controls = "\x07\x0c\n\r\t\x0b";
        assert_eq!(matching(r"\a\f\n\r\t\v", &[controls]), [controls]);
        assert_eq!(matching(r"[\n\]]+", &["]\n", "n"]), ["]\n"]);
        assert_eq!(matching(r"a\b{start}", &["a{start}", "a"]), ["a{start}"]);
        assert_eq!(matching("[a&&b]", &["a", "&", "b", "&&"]), ["a", "&", "b"]);
        assert_eq!(matching("[a[b]", &["a", "[", "b"]), ["a", "[", "b"]);
        assert_eq!(matching("[]a]", &["]", "a"]), ["]", "a"]);
        assert_eq!(matching("[^]a]", &["]", "a", "b"]), ["b"]);
        assert_eq!(matching("[+--]", &["+", ",", "-", "."]), ["+", ",", "-"]);
        assert_eq!(matching("[a-]", &["a", "-"]), ["a", "-"]);
        assert_eq!(matching("[a~~b]", &["~", "b", "a"]), ["~", "b", "a"]);
        assert_eq!(matching("a{,2}", &["a{,2}", "aa"]), ["a{,2}"]);
        assert_eq!(matching("a{", &["a{"]), ["a{"]);
        assert_eq!(
            matching("a{2}b{1,}c{0,1}", &["aab", "aabbc", "ab"]),
            ["aab", "aabbc"]
        );
        assert_eq!(matching(r"\<\_\>", &["<_>"]), ["<_>"]);
        assert_eq!(matching(r"[[:alpha:]\d]+", &["a1", "-"]), ["a1"]);
        assert_eq!(matching(r"\pL\p{Lu}\p{Greek}", &["aBα"]), ["aBα"]);
        assert_eq!(matching(r"(?P<n>a)(?:b)(?s:.)", &["abc"]), ["abc"]);
        assert_eq!(matching("a]b}", &["a]b}"]), ["a]b}"]);
        assert_eq!(
            matching("a+?b??c{1,2}?", &["aac", "abcc", "ac?", "abccc"]),
            ["aac", "abcc"]
        );
    }

    #[test]
    fn what_re2_refuses_is_refused_in_words() {
        for pattern in [
            "ct-[",
            "(?<x",
            "*a",
            "ct-(?!rx).*",
            "(?=a)",
            "(?<=a)b",
            r"(a)\1",
            r"\C",
            "a**",
            "a{2}{3}",
            "a{1001}",
            "a{3,2}",
            "a)(b",
            "(",
            ")",
            "[z-a]",
            r"\",
            r"\u1234",
            "(?x)a",
            r"\p{Nonsense}",
            "[a",
            r"\xg0",
            r"\x{110000}",
            r"\8",
            "a{2}*",
            "[]",
            r"\h",
            "(?i",
            "(?",
        ] {
            let error = Pattern::new(pattern).expect_err(pattern);
            assert!(
                !error.is_empty() && !error.contains('\n'),
                "{pattern}: {error}"
            );
        }
    }

    #[test]
    fn size_is_bounded_before_and_after_compiling() {
        assert!(Pattern::new(&"a".repeat(PATTERN_BYTES_MAX)).is_ok());
        assert!(
            Pattern::new(&"a".repeat(PATTERN_BYTES_MAX + 1))
                .unwrap_err()
                .contains("10001")
        );
        assert!(
            Pattern::new(r"(\pL{1000}){1000}")
                .unwrap_err()
                .contains("too large")
        );
        assert!(Pattern::new(&"(".repeat(PATTERN_BYTES_MAX)).is_err());
    }

    #[test]
    fn topics_resolve_in_the_order_of_their_names_internal_ones_too() {
        let mut topics = Topics::default();
        for (i, name) in ["b", "__consumer_offsets", "a", "c"]
            .into_iter()
            .enumerate()
        {
            topics.insert(
                name.into(),
                Topic {
                    id: TopicId([i as u8 + 1; 16]),
                    partitions: 1,
                },
            );
        }
        let resolved = Pattern::new("[ab]|__.*").unwrap().resolve(&topics);
        assert_eq!(
            resolved.iter().map(|n| &**n).collect::<Vec<_>>(),
            ["__consumer_offsets", "a", "b"]
        );
    }

    proptest! {
        #[test]
        fn no_pattern_panics(pattern in r"[\\\[\](){}a-c0-9QExp?*+:^$|.,<>!=&~\-\PC]{0,24}") {
            let _ = Pattern::new(&pattern);
        }

        #[test]
        fn a_quoted_text_matches_itself_alone(text in r"[ -~]{0,12}", other in r"[ -~]{0,12}") {
            prop_assume!(!text.contains("\\E"));
            let pattern = Pattern::new(&format!("\\Q{text}\\E")).unwrap();
            prop_assert!(pattern.matches(&text));
            prop_assert_eq!(pattern.matches(&other), other == text);
        }
    }
}
