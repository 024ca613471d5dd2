//! Addresses: where the server listens and what it tells clients to dial. Resolving names and
//! binding is the server's work.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::value::{Kind, Value, parts};

/// An address to bind or to dial: a host and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// A name, an IPv4 address, or an IPv6 address without brackets. Empty: every interface.
    pub host: String,
    /// The port; 0 lets the system choose, or (advertised) stands for the one that was bound.
    pub port: u16,
}

impl HostPort {
    /// Reads `HOST:PORT`, `[IPV6]:PORT` or `:PORT`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let form = "HOST:PORT, where an IPv6 address stands in brackets: [::1]:9092";
        let (host, port) = text.rsplit_once(':').ok_or(form)?;
        let host = match host
            .strip_prefix('[')
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(inner) if inner.parse::<std::net::Ipv6Addr>().is_ok() => inner,
            Some(_) => return Err(form.to_owned()),
            None if host.contains([':', '/', '[', ']', '@']) || host.contains(' ') => {
                return Err(form.to_owned());
            }
            None => host,
        };
        let port = port
            .parse()
            .map_err(|_| "a port from 0 to 65535 after the last colon")?;
        Ok(Self {
            host: host.to_owned(),
            port,
        })
    }

    /// Whether the host stands for every interface, which nobody can dial.
    pub fn is_wildcard(&self) -> bool {
        self.host.is_empty()
            || self
                .host
                .parse::<IpAddr>()
                .is_ok_and(|address| address.is_unspecified())
    }

    /// Whether only this machine can reach the address.
    pub fn is_loopback(&self) -> bool {
        match self.host.parse::<IpAddr>() {
            Ok(address) => address.is_loopback(),
            Err(_) => self.host.eq_ignore_ascii_case("localhost"),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A named address, `INSIDE://10.0.0.5:9092`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The listener's name, in upper case.
    pub name: String,
    /// Its address.
    pub address: HostPort,
}

impl Endpoint {
    /// Reads `NAME://HOST:PORT`; without a name it is `PLAINTEXT`.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, address) = text.split_once("://").unwrap_or(("PLAINTEXT", text));
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if name.is_empty() || !name.chars().all(legal) {
            return Err(
                "a listener's name is made of letters, digits, '_', '-' and '.'".to_owned(),
            );
        }
        let address = HostPort::parse(address)?;
        Ok(Self {
            name: name.to_ascii_uppercase(),
            address,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.name, self.address)
    }
}

impl Value for Vec<Endpoint> {
    const KIND: Kind = Kind::List;

    fn read(text: &str) -> Result<Self, String> {
        parts(text).map(Endpoint::parse).collect()
    }

    fn show(&self) -> String {
        let shown: Vec<_> = self.iter().map(Endpoint::to_string).collect();
        shown.join(",")
    }
}

/// Where HTTP is served, if at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpListen {
    /// Nowhere.
    Off,
    /// At this address.
    At(HostPort),
}

impl Value for HttpListen {
    const KIND: Kind = Kind::String;

    fn read(text: &str) -> Result<Self, String> {
        if text.eq_ignore_ascii_case("off") {
            return Ok(Self::Off);
        }
        HostPort::parse(text).map(Self::At)
    }

    fn show(&self) -> String {
        match self {
            Self::Off => "off".to_owned(),
            Self::At(address) => address.to_string(),
        }
    }
}

/// `NAME:PROTOCOL` pairs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProtocolMap(pub BTreeMap<String, String>);

impl Value for ProtocolMap {
    const KIND: Kind = Kind::List;

    fn read(text: &str) -> Result<Self, String> {
        let mut map = BTreeMap::new();
        for part in parts(text) {
            let (name, protocol) = part.split_once(':').ok_or_else(String::new)?;
            map.insert(
                name.trim().to_ascii_uppercase(),
                protocol.trim().to_ascii_uppercase(),
            );
        }
        Ok(Self(map))
    }

    fn show(&self) -> String {
        let pair = |(name, protocol): (&String, &String)| format!("{name}:{protocol}");
        let pairs: Vec<_> = self.0.iter().map(pair).collect();
        pairs.join(",")
    }
}

/// One listener as the server needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Its name. Two listeners share one only as the IPv4 and the IPv6 side of the same.
    pub name: String,
    /// Where to bind. An empty host is every interface; port 0 is any free port.
    pub bind: HostPort,
    /// What clients that came in here are told to dial. Port 0 stands for the bound port.
    pub advertised: HostPort,
}

/// Marries `listeners` with `advertised.listeners`. Each error is a pair: the key at fault, and
/// what is wrong with it.
pub(super) fn resolve(
    listeners: &[Endpoint],
    advertised: &[Endpoint],
    controllers: &[String],
    protocols: &ProtocolMap,
) -> Result<Vec<Listener>, (&'static str, String)> {
    let served = |endpoint: &&Endpoint| {
        !controllers
            .iter()
            .any(|name| name.eq_ignore_ascii_case(&endpoint.name))
    };
    let listeners: Vec<_> = listeners.iter().filter(served).collect();
    let advertised: Vec<_> = advertised.iter().filter(served).collect();
    if listeners.is_empty() {
        return Err(("listeners", "at least one listener is needed".to_owned()));
    }
    for (at, listener) in listeners.iter().enumerate() {
        plaintext(&listener.name, protocols)?;
        no_clash(listener, &listeners[..at])?;
    }
    for (at, endpoint) in advertised.iter().enumerate() {
        if !listeners
            .iter()
            .any(|listener| listener.name == endpoint.name)
        {
            return Err((
                "advertised.listeners",
                format!(
                    "{endpoint} names no listener; the listeners are {}",
                    names(&listeners)
                ),
            ));
        }
        if advertised[..at]
            .iter()
            .any(|earlier| earlier.name == endpoint.name)
        {
            return Err((
                "advertised.listeners",
                format!("{} is named twice", endpoint.name),
            ));
        }
        if endpoint.address.is_wildcard() {
            return Err((
                "advertised.listeners",
                format!(
                    "{endpoint} cannot be dialled; give a name or an address that clients can reach"
                ),
            ));
        }
    }
    listeners.iter().map(|listener| {
        let own = advertised.iter().find(|endpoint| endpoint.name == listener.name);
        let told = own.unwrap_or(listener);
        if told.address.is_wildcard() {
            return Err(("advertised.listeners", format!(
                "{listener} listens on every interface, and clients must be told one address to dial; add --advertise HOST:PORT or advertised.listeners={}://HOST:PORT",
                listener.name
            )));
        }
        Ok(Listener {
            name: listener.name.clone(),
            bind: listener.address.clone(),
            advertised: told.address.clone(),
        })
    }).collect()
}

fn names(listeners: &[&Endpoint]) -> String {
    let names: Vec<_> = listeners
        .iter()
        .map(|listener| listener.name.as_str())
        .collect();
    names.join(", ")
}

fn plaintext(name: &str, protocols: &ProtocolMap) -> Result<(), (&'static str, String)> {
    // Kafka wants every name in the map. With one protocol there is nothing to choose, so a name
    // that is absent speaks it; the names of the other protocols keep their meaning.
    let mapped = protocols.0.get(name).map(String::as_str);
    let own = ["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
        .contains(&name)
        .then_some(name);
    match mapped.or(own) {
        None | Some("PLAINTEXT") => Ok(()),
        Some(protocol) => Err((
            "listener.security.protocol.map",
            format!(
                "listener {name} asks for {protocol}; this version speaks PLAINTEXT only. Put a TLS proxy in front, or keep the listener on a private network"
            ),
        )),
    }
}

fn no_clash(listener: &Endpoint, earlier: &[&Endpoint]) -> Result<(), (&'static str, String)> {
    let family = |endpoint: &Endpoint| {
        endpoint
            .address
            .host
            .parse::<IpAddr>()
            .ok()
            .map(|ip| ip.is_ipv6())
    };
    for other in earlier {
        // KIP-797: one name may have an IPv4 and an IPv6 address.
        let pair = matches!((family(other), family(listener)), (Some(a), Some(b)) if a != b);
        if other.name == listener.name && !pair {
            return Err((
                "listeners",
                format!(
                    "{} is named twice; give each listener its own name",
                    listener.name
                ),
            ));
        }
        if other.address == listener.address && listener.address.port != 0 {
            return Err((
                "listeners",
                format!("{other} and {listener} are the same address"),
            ));
        }
    }
    Ok(())
}
