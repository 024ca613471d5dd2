//! What order a connection keeps: one request in service at a time, as Kafka mutes a channel, so that replies leave in the
//! order of the requests. Commits that came one behind the other are in service together: those of one group are served
//! in their order all the same, because they go to one desk, those of different groups know nothing of each other, and
//! all of them can share one sync. Not here: sockets and bytes.

use super::hop::Arrival;
use crate::group::request::Reply;

/// How a connection goes on when something came for its request in service.
#[derive(Debug)]
pub enum Turn {
    /// With this answer, and then with the next request.
    Answer(Reply),
    /// It stays open and is never answered again: its member asked again elsewhere.
    Mute,
    /// It closes, because there is no answer to give.
    Close,
    /// It has been cut.
    Cut,
}

impl From<Arrival> for Turn {
    fn from(arrival: Arrival) -> Self {
        match arrival {
            Arrival::Reply(reply) => Self::Answer(reply),
            Arrival::Superseded => Self::Mute,
            Arrival::Lost => Self::Close,
            Arrival::Cut => Self::Cut,
        }
    }
}

/// The line in front of a connection's desk.
#[derive(Debug, Default)]
pub struct Line {
    in_service: usize,
}

impl Line {
    /// Takes the next request into service with `take`, if none is in service and there is one.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn next<R, E>(
        &mut self,
        take: impl FnOnce() -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        if self.in_service > 0 {
            return Ok(None);
        }
        self.join(take)
    }

    /// Takes a request into service beside those that are: only a commit that came right behind commits. Their answers
    /// must leave in the order in which they were taken.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn join<R, E>(
        &mut self,
        take: impl FnOnce() -> Result<Option<R>, E>,
    ) -> Result<Option<R>, E> {
        let request = take()?;
        self.in_service += usize::from(request.is_some());
        Ok(request)
    }

    /// A request in service has been answered.
    pub fn answered(&mut self) {
        self.in_service = self.in_service.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_request_waits_until_the_one_in_service_is_answered() {
        let mut line = Line::default();
        let mut requests = vec![2, 1];
        let mut next = |line: &mut Line| line.next(|| Ok::<_, ()>(requests.pop())).unwrap();
        assert_eq!(next(&mut line), Some(1));
        assert_eq!(next(&mut line), None);
        line.answered();
        assert_eq!(next(&mut line), Some(2));
        line.answered();
        assert_eq!(next(&mut line), None);
    }

    #[test]
    fn the_next_request_waits_for_all_that_are_in_service_together() {
        let mut line = Line::default();
        assert_eq!(line.next(|| Ok::<_, ()>(Some(1))), Ok(Some(1)));
        assert_eq!(line.join(|| Ok::<_, ()>(Some(2))), Ok(Some(2)));
        line.answered();
        assert_eq!(line.next(|| Ok::<_, ()>(Some(3))), Ok(None));
        line.answered();
        assert_eq!(line.next(|| Ok::<_, ()>(Some(3))), Ok(Some(3)));
    }
}
