//! What order a connection keeps: one request in service at a time, as Kafka mutes a channel, so that replies leave in the
//! order of the requests. Not here: sockets and bytes.

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
    in_service: bool,
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
        if self.in_service {
            return Ok(None);
        }
        let request = take()?;
        self.in_service = request.is_some();
        Ok(request)
    }

    /// The request in service has been answered.
    pub fn answered(&mut self) {
        self.in_service = false;
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
}
