//! Sizes, fractions and times as people write and read them.

use std::time::Duration;

/// Parses a size in bytes: `4096`, `64KiB`, `256MiB`, `1GiB`, also `64k`, `1.5GiB`, `1GB` (powers of ten).
///
/// # Errors
/// A message that says what is accepted.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let factor = unit_factor(unit.trim())
        .ok_or_else(|| format!("unknown unit {unit:?}: use B, KiB, MiB, GiB or TiB"))?;
    let refuse = || format!("{text:?} is no size: write for example 256MiB");
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole: u64 = whole.parse().map_err(|_| refuse())?;
    let mut bytes = whole.checked_mul(factor).ok_or_else(refuse)?;
    let mut scale = 1;
    for digit in fraction.chars().take(9) {
        scale *= 10;
        let digit = u64::from(digit.to_digit(10).ok_or_else(refuse)?);
        bytes = bytes.checked_add(digit * factor / scale).ok_or_else(refuse)?;
    }
    Ok(bytes)
}

/// Parses a probability, `0` to `0.9`; `1%` is `0.01`.
///
/// # Errors
/// A message that says what is accepted.
pub(crate) fn parse_fraction(text: &str) -> Result<f64, String> {
    let refuse = || format!("{text:?} is no fraction: write for example 0.01 or 1%, at most 0.9");
    let (number, divisor) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let value: f64 = number.trim().parse().map_err(|_| refuse())?;
    let value = value / divisor;
    if (0.0..=0.9).contains(&value) { Ok(value) } else { Err(refuse()) }
}

/// Parses a rate in bits per second, `25G` or `1.5M`, into kbit/s, 1 or more.
///
/// # Errors
/// A message that says what is accepted.
pub(crate) fn parse_rate(text: &str) -> Result<u32, String> {
    let refuse = || format!("{text:?} is no rate: write for example 25G, from 1k to 4000G bits per second");
    let bits = match text.trim().as_bytes() {
        [.., b'k' | b'K' | b'M' | b'G' | b'T'] => parse_size(&format!("{}B", text.trim())),
        _ => parse_size(text),
    };
    let kbps = u32::try_from(bits.map_err(|_| refuse())? / 1_000).map_err(|_| refuse())?;
    if (1..=4_000_000_000).contains(&kbps) { Ok(kbps) } else { Err(refuse()) }
}

/// Bytes with a binary unit, three significant digits: `1.50 GiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "for people: three digits are shown")]
    let mut value = count as f64;
    let mut unit = "B";
    for next in UNITS.iter().skip(1) {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    if unit == "B" { format!("{count} B") } else { format!("{value:.*} {unit}", digits(value)) }
}

/// Nanoseconds with a fitting unit: `182 µs`; `–` for zero, which the core uses for "no sample yet".
pub(crate) fn nanos(count: u64) -> String {
    if count == 0 {
        return "–".to_owned();
    }
    #[expect(clippy::cast_precision_loss, reason = "for people: three digits are shown")]
    let value = count as f64;
    let (value, unit) = match count {
        0..1_000 => (value, "ns"),
        1_000..1_000_000 => (value / 1e3, "µs"),
        1_000_000..1_000_000_000 => (value / 1e6, "ms"),
        _ => (value / 1e9, "s"),
    };
    format!("{value:.*} {unit}", digits(value))
}

/// Gigabits per second of `bytes` moved in `time`; 0 when no time has passed.
#[expect(clippy::cast_precision_loss, reason = "a rate is an estimate")]
pub(crate) fn gbps(bytes: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds > 0.0 { bytes as f64 * 8e-9 / seconds } else { 0.0 }
}

/// `part` of `whole` in per cent, 0 of nothing.
#[expect(clippy::cast_precision_loss, reason = "for people: two digits are shown")]
pub(crate) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

fn digits(value: f64) -> usize {
    match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    }
}

fn unit_factor(unit: &str) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_with_binary_and_decimal_units() {
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size(" 64 k"), Ok(64 << 10));
        assert_eq!(parse_size("1.5MiB"), Ok(3 << 19));
        assert_eq!(parse_size("1GB"), Ok(1_000_000_000));
        assert_eq!(parse_size("0"), Ok(0));
    }

    #[test]
    fn nonsense_is_no_size() {
        for text in ["", "GiB", "-1", "1e9", "1.2.3MiB", "12 parsecs", "99999999999TiB"] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn rates_are_parsed_in_bits_and_told_in_kilobits() {
        assert_eq!(parse_rate("25G"), Ok(25_000_000));
        assert_eq!(parse_rate("1.5M"), Ok(1_500));
        assert_eq!(parse_rate("64000"), Ok(64));
        assert_eq!(parse_rate("4T"), Ok(4_000_000_000));
        for text in ["", "G", "0", "999", "-1G", "fast", "5T", "1e9"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn fractions_are_parsed_and_bounded() {
        assert_eq!(parse_fraction("0.01"), Ok(0.01));
        assert_eq!(parse_fraction("10%"), Ok(0.1));
        assert_eq!(parse_fraction("0"), Ok(0.0));
        for text in ["1", "-0.1", "NaN", "abc", "101%", ""] {
            assert!(parse_fraction(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_shown_with_three_digits() {
        assert_eq!(bytes(512), "512 B");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
        assert_eq!(bytes(100 << 20), "100 MiB");
        assert_eq!(nanos(0), "–");
        assert_eq!(nanos(182_400), "182 µs");
        assert_eq!(nanos(1_500_000), "1.50 ms");
    }

    #[test]
    fn rates_and_shares_of_nothing_are_zero() {
        assert!(gbps(1 << 30, Duration::ZERO).abs() < f64::EPSILON);
        assert!((gbps(125_000_000, Duration::from_secs(1)) - 1.0).abs() < 1e-9);
        assert!(percent(1, 0).abs() < f64::EPSILON);
    }
}
