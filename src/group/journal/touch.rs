//! Who commits and who fetches: one shared name for each client, so that a commit by whoever committed last costs no
//! memory and no allocation.

use std::hash::{Hash, Hasher};
use std::sync::{Arc, LazyLock};

use hashbrown::{Equivalent, HashSet};

use crate::group::operator::Toucher;
use crate::group::types::{Client, MemberId};

/// Whoever has not logged in.
static ANONYMOUS: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from("User:ANONYMOUS"));
/// Below so many names nobody looks for those that are not used any more.
const NAMES_MIN: usize = 256;

/// The names of clients that have touched offsets.
#[derive(Debug, Default)]
pub(in crate::group) struct Touchers {
    known: HashSet<Arc<Toucher>>,
    /// At so many names those that nobody uses are dropped.
    sweep_at: usize,
}

/// A name as it comes with a request.
#[derive(Clone, Copy, Debug)]
pub(in crate::group) struct Name<'a> {
    pub(in crate::group) client: &'a Client,
    /// `None` in assign mode.
    pub(in crate::group) member_id: Option<&'a MemberId>,
}

impl Name<'_> {
    pub(in crate::group) fn is(&self, toucher: &Toucher) -> bool {
        toucher.member_id.as_ref() == self.member_id
            && toucher.client_id == self.client.id
            && toucher.client_host == self.client.host
    }
}

impl Hash for Toucher {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.client_id.hash(state);
        self.client_host.hash(state);
        self.member_id.hash(state);
    }
}

impl Hash for Name<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.client.id.hash(state);
        self.client.host.hash(state);
        self.member_id.hash(state);
    }
}

impl Equivalent<Arc<Toucher>> for Name<'_> {
    fn equivalent(&self, toucher: &Arc<Toucher>) -> bool {
        self.is(toucher)
    }
}

impl Touchers {
    /// The shared name.
    pub(in crate::group) fn shared(&mut self, name: Name<'_>) -> Arc<Toucher> {
        if let Some(known) = self.known.get(&name) {
            return known.clone();
        }
        if self.known.len() >= self.sweep_at.max(NAMES_MIN) {
            self.known.retain(|toucher| Arc::strong_count(toucher) > 1);
            self.sweep_at = 2 * self.known.len();
        }
        let toucher = Arc::new(Toucher {
            client_id: name.client.id.clone(),
            client_host: name.client.host.clone(),
            principal: ANONYMOUS.clone(),
            member_id: name.member_id.cloned(),
        });
        self.known.insert(toucher.clone());
        toucher
    }
}

/// A client, as the audit trail names it.
pub(in crate::group) fn who(toucher: &Toucher) -> Arc<str> {
    let (client, host) = (&toucher.client_id, &toucher.client_host);
    let text = match &toucher.member_id {
        Some(member_id) => format!("member {member_id} (client {client} at {host})"),
        None => format!("client {client} at {host}"),
    };
    text.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_one_name_and_names_that_nobody_uses_go() {
        let mut touchers = Touchers::default();
        let client = |id: String| Client {
            id: id.into(),
            host: "/h".into(),
        };
        let (one, member) = (client("one".to_owned()), MemberId::from("m"));
        let assign = Name {
            client: &one,
            member_id: None,
        };
        let kept = touchers.shared(assign);
        assert!(Arc::ptr_eq(&kept, &touchers.shared(assign)));
        let as_member = touchers.shared(Name {
            member_id: Some(&member),
            ..assign
        });
        assert_ne!(kept, as_member);
        for n in 0..10 * NAMES_MIN {
            let client = client(n.to_string());
            touchers.shared(Name {
                client: &client,
                member_id: None,
            });
        }
        assert!(touchers.known.len() <= NAMES_MIN + 1);
        assert!(Arc::ptr_eq(&kept, &touchers.shared(assign)));
    }
}
