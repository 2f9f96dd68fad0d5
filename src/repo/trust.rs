//! What keeps clients from trusting a publication that is whole: it has expired, or packages have no signature of
//! their own.

use std::path::Path;

use super::change::Change;
use super::record::{Part, Record};
use super::store::State;
use crate::date;
use crate::error::Error;

/// That apt would not trust a publication of this date any more at the time `now`; all in seconds since 1970.
pub(super) fn expired(dir: &Path, date: i64, end: i64, now: i64) -> Error {
    Error::failed(format!(
        "the publication has expired already: it is dated {} and valid until {}, and now it is {}",
        date::iso(date),
        date::iso(end),
        date::iso(now)
    ))
    .at(dir)
    .hint(
        "apt refuses it. The date is --date, else SOURCE_DATE_EPOCH, else that of the newest package: pass --date \
         \"$(date +%s)\", or more --valid-days; to make a publication of the past again, give its date with --date",
    )
}

/// A warning of `.rpm` packages that have no signature over their header, among those that come, or with `of_all` among all.
/// `signs` is whether the metadata are signed.
pub(super) fn unsigned(
    state: &State,
    change: &Change,
    of_all: bool,
    signs: bool,
) -> Option<String> {
    let is_unsigned = |record: &&Record| matches!(&record.part, Part::Rpm(part) if !part.is_signed);
    let records = || change.packages.iter().map(|stored| &*stored.record);
    let come = change.added.iter().map(|one| &*one.stored.record);
    let told: Vec<&Record> = if of_all {
        records().filter(is_unsigned).collect()
    } else {
        come.filter(is_unsigned).collect()
    };
    let first = told.iter().min_by(|a, b| a.order(b)).filter(|_| signs)?;
    let more = match told.len() - 1 {
        0 => "is not signed itself".to_owned(),
        more => format!("and {more} more .rpm are not signed themselves"),
    };
    let is_signed = |record: &Record| matches!(&record.part, Part::Rpm(part) if part.is_signed);
    let mut before = state.packages.iter().map(|stored| &*stored.record);
    // What the .repo file of the publication before told clients.
    let consequence = if records().any(is_signed) || before.any(is_signed) {
        "others here are signed, and clients that have a .repo file with gpgcheck=1 refuse these"
    } else {
        "clients with gpgcheck=1 refuse them; the .repo file says gpgcheck=0, as signed metadata vouch for them"
    };
    Some(format!(
        "{} {more}: {consequence}. Pass --sign-packages where packages are added, or sign \
         them before: `package --sign-key`, `gfxpack sign`",
        first.called()
    ))
}
