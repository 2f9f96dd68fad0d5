//! Dates as changelogs write them, in UTC.

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAY: i64 = 86_400;

/// Year, month (0 to 11) and day of the month of a day since 1970-01-01.
fn civil(days: i64) -> (i64, usize, i64) {
    // The year begins in March here, so that the leap day is its last.
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = usize::try_from((month + 2) % 12).expect("a month is not negative");
    (year_of_era + era * 400 + i64::from(month < 2), month, day)
}

/// The year.
pub(crate) fn year(seconds: i64) -> i64 {
    civil(seconds.div_euclid(DAY)).0
}

/// `Mon, 05 Jan 2026 12:00:00 +0000`.
pub(crate) fn rfc2822(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    format!(
        "{}, {day:02} {} {year} {:02}:{:02}:{:02} +0000",
        DAYS[weekday(days)],
        MONTHS[month],
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Reads what [`rfc2822`] prints; also with `UTC` or `GMT` at the end, as Release files have it.
pub(crate) fn parse_rfc2822(text: &str) -> Option<i64> {
    let [weekday, day, month, year, time, zone]: [&str; 6] =
        text.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
    if !matches!(zone, "+0000" | "UTC" | "GMT") {
        return None;
    }
    let noon = parse_spec(&format!("{} {month} {day} {year}", weekday.trim_end_matches(',')))?;
    let mut seconds = 0;
    for (part, most) in time.split(':').zip([23, 59, 60]) {
        let part: i64 = part.parse().ok().filter(|part| (0..=most).contains(part))?;
        seconds = seconds * 60 + part;
    }
    (time.split(':').count() == 3).then_some(noon - DAY / 2 + seconds)
}

/// `2026-01-05T12:00:00Z`.
pub(crate) fn iso(seconds: i64) -> String {
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", month + 1)
}

/// `Mon Jan 05 2026`.
pub(crate) fn spec(seconds: i64) -> String {
    let days = seconds.div_euclid(DAY);
    let (year, month, day) = civil(days);
    format!("{} {} {day:02} {year}", DAYS[weekday(days)], MONTHS[month])
}

/// Noon of the day that [`spec`] printed, as rpmbuild reads it.
pub(crate) fn parse_spec(text: &str) -> Option<i64> {
    let [_, month, day, year]: [&str; 4] =
        text.split_whitespace().collect::<Vec<_>>().try_into().ok()?;
    let month = MONTHS.iter().position(|m| *m == month)?;
    let (day, year): (i64, i64) = (day.parse().ok()?, year.parse().ok()?);
    if !(0..=9999).contains(&year) {
        return None;
    }
    // No formula for the reverse: a guess that is at most a few days early, then days one by one.
    let guess = (year - 1970) * 365 + (year - 1972) / 4 + i64::try_from(month).ok()? * 30;
    let days = (guess - 30..guess + 60).find(|&days| civil(days) == (year, month, day))?;
    Some(days * DAY + DAY / 2)
}

fn weekday(days: i64) -> usize {
    usize::try_from(days.rem_euclid(7)).expect("0 to 6")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_date_1() {
        assert_eq!(rfc2822(0), "Thu, 01 Jan 1970 00:00:00 +0000");
        assert_eq!(rfc2822(1_767_614_400), "Mon, 05 Jan 2026 12:00:00 +0000");
        assert_eq!(rfc2822(1_709_210_096), "Thu, 29 Feb 2024 12:34:56 +0000");
        assert_eq!(iso(1_709_210_096), "2024-02-29T12:34:56Z");
        assert_eq!(spec(951_782_400), "Tue Feb 29 2000");
        assert_eq!(year(1_767_225_599), 2025);
    }

    #[test]
    fn a_date_of_a_release_is_read_back() {
        for seconds in [0, 951_825_599, 1_767_614_400, 4_102_444_799] {
            assert_eq!(parse_rfc2822(&rfc2822(seconds)), Some(seconds));
        }
        assert_eq!(parse_rfc2822("Sat, 10 Jun 2023 08:53:35 UTC"), Some(1_686_387_215));
        for bad in ["", "Sat, 10 Jun 2023 08:53 UTC", "Sat, 10 Jun 999999999999 08:53:35 UTC"] {
            assert_eq!(parse_rfc2822(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_spec_date_is_read_back() {
        for days in (0..60_000).step_by(17) {
            assert_eq!(parse_spec(&spec(days * DAY)), Some(days * DAY + DAY / 2));
        }
        assert_eq!(parse_spec("Mon Jan 32 2026"), None);
        assert_eq!(parse_spec("Mon Foo 02 2026"), None);
    }
}
