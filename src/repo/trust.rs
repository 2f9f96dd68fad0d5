//! What keeps clients from trusting a publication that is whole: it has expired, it goes back behind the one that they
//! have, or packages have no signature of their own.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::brief::Package;
use super::change::Change;
use super::root;
use super::store::State;
use crate::date;
use crate::error::Error;
use crate::package::Format;

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

/// So much of a top file has its date in it.
const TOP: u64 = 64 << 10;

/// That what is published is later than the state, which then is one of before: a copy that was put back, or that of another
/// repository. Packages that came since would be lost without a word. What cannot be read is made anew, and no fault.
pub(super) fn outdated(dir: &Path, state: &State) -> Result<(), Error> {
    let release = format!("{}/dists/{}/Release", root(Format::Deb), state.settings.suite);
    let repomd = format!("{}/repodata/repomd.xml", root(Format::Rpm));
    let text = |path: &str| {
        let mut bytes = Vec::new();
        File::open(dir.join(path)).ok()?.take(TOP).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    };
    let of_release = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("Date:"))?;
        date::parse_rfc2822(line.trim())
    };
    let of_repomd = |text: String| {
        let (_, rest) = text.split_once("<revision>")?;
        rest.split_once('<')?.0.trim().parse().ok()
    };
    let dates = [
        (text(&release).and_then(of_release), release),
        (text(&repomd).and_then(of_repomd), repomd),
    ];
    match dates.into_iter().find(|(date, _)| date.is_some_and(|date: i64| date > state.date)) {
        None => Ok(()),
        Some((published, top)) => Err(Error::failed(format!(
            "{top} is of {}, later than the state of the repository in .gfxpack, which is of {}",
            date::iso(published.unwrap_or_default()),
            date::iso(state.date)
        ))
        .at(dir)
        .hint(
            "packages that came since would be lost: put back the state that belongs to what is published. Where that is \
             lost, make the repository anew: gfxpack repo create NEW DIR --date \"$(date +%s)\" takes all packages below DIR, \
             also those that were removed lately, whose files stay for a while: remove them again. Where the file is the one \
             that is wrong, remove it",
        )),
    }
}

/// A warning of `.rpm` packages that have no signature over their header, among those that come, or with `of_all` among all.
/// `signs` is whether the metadata are signed.
pub(super) fn unsigned(
    state: &State,
    change: &Change,
    of_all: bool,
    signs: bool,
) -> Option<String> {
    let is_unsigned = |record: &&Package| record.format() == Format::Rpm && !record.part.is_signed;
    let records = || change.packages.iter().map(|stored| &*stored.record);
    let come = change.added.iter().map(|one| &*one.stored.record);
    let told: Vec<&Package> = if of_all {
        records().filter(is_unsigned).collect()
    } else {
        come.filter(is_unsigned).collect()
    };
    let first = told.iter().min_by(|a, b| a.order(b)).filter(|_| signs)?;
    let more = match told.len() - 1 {
        0 => "is not signed itself".to_owned(),
        more => format!("and {more} more .rpm are not signed themselves"),
    };
    let is_signed = |record: &Package| record.part.is_signed;
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
