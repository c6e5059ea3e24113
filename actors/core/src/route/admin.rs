//! Who hears what the admin state says.

use super::Delivery;
use crate::{admin_state, discovery, leader, writer};

pub(super) fn from_admin_state(said: admin_state::Out, deliver: &mut impl FnMut(Delivery)) {
    match said {
        admin_state::Out::Draining(set) => deliver(Delivery::Writer(writer::In::Draining(set))),
        admin_state::Out::Due(pool, due) => deliver(Delivery::Writer(writer::In::AdminDue(pool, due))),
        admin_state::Out::Withdraw(pool, generation) => {
            deliver(Delivery::Writer(writer::In::AdminWithdraw(pool, generation)));
        }
        admin_state::Out::Opened(epoch) => deliver(Delivery::Leader(leader::In::Opened(epoch))),
        admin_state::Out::Look => deliver(Delivery::Discovery(discovery::In::Look)),
    }
}
