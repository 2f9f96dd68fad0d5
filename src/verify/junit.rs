//! A report as JUnit XML, which CI systems show: a test case for each check, failed by its errors.

use std::fmt::Write;

use super::{Check, Report, Severity};

impl Report {
    /// The report as JUnit XML: a test suite for each invariant, a test case for each check. Errors
    /// are failures; warnings and accepted findings are output of their case.
    pub fn junit(&self) -> String {
        let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
        for line in &self.summary {
            let number = line.invariant;
            let checks = Check::ALL.iter().filter(|check| check.about().invariant == number);
            let cases: Vec<String> = checks.map(|&check| self.case(check)).collect();
            let failures = cases.iter().filter(|case| case.contains("<failure")).count();
            put(
                &mut xml,
                format_args!(
                    "  <testsuite name=\"{number}: {}\" tests=\"{}\" failures=\"{failures}\">\n",
                    escape(line.holds),
                    cases.len()
                ),
            );
            xml.push_str(&cases.concat());
            xml.push_str("  </testsuite>\n");
        }
        xml.push_str("</testsuites>\n");
        xml
    }

    fn case(&self, check: Check) -> String {
        let about = check.about();
        let found = || self.findings.iter().filter(|finding| finding.id == check);
        let text = |severity| {
            let mut text = String::new();
            for finding in found().filter(|finding| finding.severity == severity) {
                let (place, message) = (finding.place(), &finding.message);
                put(&mut text, format_args!("{place}: {message}; expected {}\n", finding.expected));
            }
            text
        };
        let (errors, mut output) = (text(Severity::Error), text(Severity::Warning));
        for allowed in self.allowed.iter().filter(|allowed| allowed.finding.id == check) {
            let finding = &allowed.finding;
            let (place, message) = (finding.place(), &finding.message);
            put(&mut output, format_args!("{place}: {message}; allowed: {}\n", allowed.reason));
        }
        let invariant = about.invariant;
        let mut xml =
            format!("    <testcase classname=\"invariant-{invariant}\" name=\"{}\"", about.id);
        if errors.is_empty() && output.is_empty() {
            xml.push_str("/>\n");
            return xml;
        }
        xml.push_str(">\n");
        if !errors.is_empty() {
            let count = errors.lines().count();
            put(
                &mut xml,
                format_args!(
                    "      <failure message=\"{count} found; {}\">{}</failure>\n",
                    escape(about.mend),
                    escape(&errors)
                ),
            );
        }
        if !output.is_empty() {
            put(&mut xml, format_args!("      <system-out>{}</system-out>\n", escape(&output)));
        }
        xml.push_str("    </testcase>\n");
        xml
    }
}

fn put(text: &mut String, what: std::fmt::Arguments) {
    text.write_fmt(what).expect("writing to a string does not fail");
}

/// Text of XML 1.0: markup escaped, characters that it cannot hold replaced.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::super::finding::Finding;
    use super::super::{Allowed, InvariantSummary};
    use super::*;

    #[test]
    fn a_report_becomes_a_suite_for_each_invariant() {
        let finding =
            |check, file| Finding::new(check, "a_lib_generic", file, "is <odd>", "\u{1}&");
        let summary =
            |invariant, holds| InvariantSummary { invariant, holds, errors: 0, warnings: 0 };
        let reason = "known".to_owned();
        let report = Report {
            artifacts: Vec::new(),
            files: 0,
            kernels: 0,
            bytes: 0,
            findings: vec![finding(Check::Manifest, "x"), finding(Check::Mode, "y")],
            allowed: vec![Allowed { finding: finding(Check::PathTwice, "z"), reason }],
            summary: vec![summary(1, "one"), summary(6, "six")],
        };
        let xml = report.junit();
        assert_eq!(xml.matches("<testsuite ").count(), 2);
        assert!(xml.contains("name=\"1: one\" tests=\"5\" failures=\"1\""), "{xml}");
        assert!(
            xml.contains(">a_lib_generic/x: is &lt;odd&gt;; expected \u{fffd}&amp;\n</failure>")
        );
        assert!(xml.contains("<system-out>a_lib_generic/y: is &lt;odd&gt;"), "{xml}");
        assert!(xml.contains("allowed: known"), "{xml}");
        assert!(xml.contains("name=\"path-shared\"/>"), "{xml}");
    }
}
