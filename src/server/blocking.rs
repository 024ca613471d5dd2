//! A server with threads of its own, for programs and tests that know nothing of async.

use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use super::{Address, Builder, Error, Observer, Server};

/// A running server that brings its own threads. Dropping it stops it in good order.
#[derive(Debug)]
pub struct BlockingServer {
    addresses: Vec<Address>,
    observer: Observer,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<Result<(), Error>>>,
}

impl BlockingServer {
    pub(super) fn start(builder: Builder) -> Result<Self, Error> {
        let (stop, stopped) = oneshot::channel();
        let (started, start) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("convoke-server".to_owned())
            .spawn(move || serve(builder, &started, stopped))
            .map_err(Error::Threads)?;
        let (addresses, observer) = match start.recv() {
            Ok(started) => started?,
            Err(_) => return Err(Error::Ended("its thread panicked".to_owned())),
        };
        Ok(Self {
            addresses,
            observer,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Where clients of the first listener connect: `host:port`.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.addresses
            .first()
            .map(|address| address.advertised.clone())
            .unwrap_or_default()
    }

    /// Every listener, in the order of the settings.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Looks into the running server; outlives it harmlessly.
    #[must_use]
    pub fn observer(&self) -> Observer {
        self.observer.clone()
    }

    /// Stops in good order and waits for it.
    ///
    /// # Errors
    /// As [`Server::stop`].
    pub fn stop(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended by itself.
            let _ = stop.send(());
        }
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(ended)) => ended,
            Some(Err(_)) => Err(Error::Ended("its thread panicked".to_owned())),
            None => Ok(()),
        }
    }
}

impl Drop for BlockingServer {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!("the server did not stop in good order: {error}");
        }
    }
}

fn serve(
    builder: Builder,
    started: &mpsc::Sender<Result<(Vec<Address>, Observer), Error>>,
    stopped: oneshot::Receiver<()>,
) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("convoke")
        .enable_all()
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            let _ = started.send(Err(Error::Threads(error)));
            return Ok(());
        }
    };
    runtime.block_on(async {
        let server: Server = match builder.start().await {
            Ok(server) => server,
            Err(error) => {
                let _ = started.send(Err(error));
                return Ok(());
            }
        };
        tokio::select! {
            () = server.ready() => {
                let _ = started.send(Ok((server.addresses().to_vec(), server.observer())));
            }
            why = server.failed() => {
                let _ = started.send(Err(Error::Ended(why)));
                return Ok(());
            }
        }
        // Both a word and a dropped sender mean that it is time to stop.
        let _ = stopped.await;
        server.stop().await
    })
}
