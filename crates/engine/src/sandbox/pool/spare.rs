//! The spare: one machine that waits for the next one-shot.
//!
//! Whoever runs one command often runs the next one soon. The second one-shot of the same kind
//! within `spare_seconds` has one machine of that kind made ahead, and it waits for as long as
//! such calls keep coming. There is one kind at a time, the last one that was asked for.

use motu_core::sandbox::CreateSandbox;
use std::time::Duration;
use tokio::time::Instant;

/// The kind that was asked for last.
#[derive(Debug)]
struct Asked<K> {
    kind: K,
    request: CreateSandbox,
    at: Instant,
    /// It was asked for before, not long ago.
    again: bool,
}

#[derive(Debug)]
pub struct Spare<K>(Option<Asked<K>>);

impl<K> Default for Spare<K> {
    fn default() -> Self {
        Spare(None)
    }
}

impl<K: PartialEq> Spare<K> {
    /// Notes a one-shot of a kind. Returns true if other machines are wanted from now on: one of
    /// this kind, or no longer one of another.
    pub fn asked(
        &mut self,
        kind: K,
        request: CreateSandbox,
        now: Instant,
        within: Duration,
    ) -> bool {
        let recent = |asked: &Asked<K>| asked.kind == kind && now < asked.at + within;
        let before = self.0.as_ref().filter(|asked| recent(asked));
        let again = before.is_some();
        let waits = self.0.as_ref().is_some_and(|asked| asked.again);
        let changes = again != waits;
        self.0 = Some(Asked {
            kind,
            request,
            at: now,
            again,
        });
        changes
    }

    /// The request that makes the wanted machine.
    pub fn wanted(&self, now: Instant, within: Duration) -> Option<CreateSandbox> {
        let asked = self.0.as_ref().filter(|asked| asked.again)?;
        (now < asked.at + within).then(|| asked.request.clone())
    }

    /// When to look again: one that is not wanted any more has to go, even if its time was over
    /// before it was made.
    pub fn look_again(&mut self, now: Instant, within: Duration) -> Option<Instant> {
        let until = self.0.as_ref().filter(|asked| asked.again)?.at + within;
        if until <= now {
            self.forget();
        }
        Some(until)
    }

    /// Lets it be, for example because it cannot be made.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WITHIN: Duration = Duration::from_secs(60);

    fn ask(spare: &mut Spare<u32>, kind: u32, at: Instant) -> bool {
        let request = CreateSandbox {
            environment: kind.to_string(),
            ..CreateSandbox::default()
        };
        spare.asked(kind, request, at, WITHIN)
    }

    fn wanted(spare: &Spare<u32>, now: Instant) -> Option<String> {
        Some(spare.wanted(now, WITHIN)?.environment)
    }

    #[test]
    fn the_second_of_a_kind_has_one_made_and_it_waits_as_long_as_calls_come() {
        let (mut spare, begun) = (Spare::default(), Instant::now());
        let later = |seconds| begun + Duration::from_secs(seconds);
        assert!(!ask(&mut spare, 1, begun));
        assert_eq!(wanted(&spare, begun), None);
        assert!(ask(&mut spare, 1, later(59)));
        assert_eq!(wanted(&spare, later(59)), Some("1".into()));
        // It is wanted already.
        assert!(!ask(&mut spare, 1, later(100)));
        assert_eq!(wanted(&spare, later(159)), Some("1".into()));
        assert_eq!(wanted(&spare, later(160)), None);
        // A call after a long pause is a first one again.
        assert!(
            ask(&mut spare, 1, later(160)),
            "the one that waited has to go"
        );
        assert_eq!(wanted(&spare, later(160)), None);
    }

    #[test]
    fn one_whose_time_was_over_too_soon_is_looked_at_once_more() {
        let (mut spare, begun) = (Spare::default(), Instant::now());
        let later = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(spare.look_again(begun, WITHIN), None);
        ask(&mut spare, 1, begun);
        assert_eq!(spare.look_again(begun, WITHIN), None);
        ask(&mut spare, 1, begun);
        assert_eq!(spare.look_again(later(59), WITHIN), Some(later(60)));
        assert_eq!(spare.look_again(later(70), WITHIN), Some(later(60)));
        assert_eq!(spare.look_again(later(70), WITHIN), None);
    }

    #[test]
    fn another_kind_takes_its_place() {
        let (mut spare, now) = (Spare::default(), Instant::now());
        assert!(!ask(&mut spare, 1, now));
        assert!(ask(&mut spare, 1, now));
        assert!(ask(&mut spare, 2, now), "that of the first kind has to go");
        assert_eq!(wanted(&spare, now), None);
        assert!(ask(&mut spare, 2, now));
        assert_eq!(wanted(&spare, now), Some("2".into()));
        spare.forget();
        assert_eq!(wanted(&spare, now), None);
    }

    #[test]
    fn without_time_nothing_waits() {
        let (mut spare, now) = (Spare::default(), Instant::now());
        for _ in 0..3 {
            let wanted = spare.asked(1, CreateSandbox::default(), now, Duration::ZERO);
            assert!(!wanted);
            assert!(spare.wanted(now, Duration::ZERO).is_none());
        }
    }
}
