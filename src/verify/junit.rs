//! The report as a JUnit file, which CI systems show: a test suite for each invariant, a test case for
//! each artifact that has findings of it, and one for the others together. What was accepted is a test case that was
//! skipped, with the reason.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::{Finding, Report, Severity};

/// Renders the report. Errors are failures; warnings are too where `warnings_as_errors` is set, and
/// stand in the test case's output where it is not.
pub fn junit(report: &Report, warnings_as_errors: bool) -> String {
    let failing = |finding: &Finding| warnings_as_errors || finding.severity == Severity::Error;
    let failures = report.findings.iter().filter(|finding| failing(finding)).count();
    let mut text = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let _ = writeln!(text, "<testsuites name=\"gfxpack verify\" failures=\"{failures}\">");
    for summary in &report.summary {
        let mut cases: BTreeMap<&str, Vec<&Finding>> = BTreeMap::new();
        for finding in report.findings.iter().filter(|f| f.invariant == summary.invariant) {
            cases.entry(&finding.artifact).or_default().push(finding);
        }
        let invariant = summary.invariant;
        let allowed = report.allowed.iter().filter(|one| one.finding.invariant == invariant);
        let allowed: Vec<_> = allowed.collect();
        let failed = cases.values().flatten().filter(|finding| failing(finding)).count();
        let _ = writeln!(
            text,
            "  <testsuite name=\"{invariant} {}\" tests=\"{}\" failures=\"{failed}\" skipped=\"{}\">",
            escape(summary.holds),
            cases.len().max(1) + allowed.len(),
            allowed.len(),
        );
        for allowed in allowed {
            let finding = &allowed.finding;
            let _ = writeln!(
                text,
                "    <testcase classname=\"verify\" name=\"{} {}\">\n      \
                 <skipped message=\"allowed: {}\">{}</skipped>\n    </testcase>",
                finding.id,
                escape(&finding.place()),
                escape(&allowed.reason),
                escape(&body(finding)),
            );
        }
        if cases.is_empty() {
            let _ = writeln!(text, "    <testcase classname=\"verify\" name=\"all artifacts\"/>");
        }
        for (artifact, findings) in cases {
            let name = if artifact.is_empty() { "several artifacts" } else { artifact };
            let _ = writeln!(text, "    <testcase classname=\"verify\" name=\"{}\">", escape(name));
            for finding in findings {
                let element = if failing(finding) { "failure" } else { "system-out" };
                let attributes = if failing(finding) {
                    format!(" type=\"{}\" message=\"{}\"", finding.id, escape(&finding.message))
                } else {
                    String::new()
                };
                let body = escape(&body(finding));
                let _ = writeln!(text, "      <{element}{attributes}>{body}</{element}>");
            }
            let _ = writeln!(text, "    </testcase>");
        }
        let _ = writeln!(text, "  </testsuite>");
    }
    text + "</testsuites>\n"
}

fn body(finding: &Finding) -> String {
    let Finding { id, file, message, expected, cause, mend, .. } = finding;
    format!(
        "{id}: {file}\nfound: {message}\nexpected: {expected}\nlikely cause: {cause}\nmend: {mend}"
    )
}

/// Text as XML takes it: markup escaped, and control characters, which XML has no way to write, shown
/// as `?`.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            c if c.is_control() => escaped.push('?'),
            c => escaped.push(c),
        }
    }
    escaped
}
