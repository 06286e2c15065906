// comm/hosts.h — hosts.txt, the one file that invites a machine.
//
//   # comment
//   key   kJ3...                          the run's secret; written by `hub --new`
//   anna  anna.example.org:7077 up=20 down=100 data=books/
//   ben   -                     up=10 down=50
//   store s3://bucket/prefix              or file:///path: instead of a hub
//   delivery direct                       hosts with an address serve their own messages
//
// The first host with an address is the hub. '-': dials out only. A hub that must not read has
// `hub-key ...` in place of `key ...`. An invite is the same file as one line of text.
#pragma once

#include "comm/seal.h"

#include <string>
#include <vector>

namespace gt {

struct HostLine {
    std::string name;
    std::string address;   // host:port; empty: only dials out
    double      up   = 0;  // Mbit/s; 0: not said
    double      down = 0;
    std::string data;
};

struct Hosts {
    std::vector<HostLine> hosts;
    std::string           store;           // s3://... or file:///...; empty: the hub
    bool                  direct = false;  // delivery: not through the hub where it can be avoided
    RunKeys               keys;
    std::string           key, hub_key;  // as written; exactly one is set

    const HostLine * find(const std::string & name) const;  // null: not listed
    const HostLine * hub() const;                           // null: there is a store instead
};

// `file` is for messages. Throws Error with line number and next move.
Hosts parse_hosts(const std::string & text, const std::string & file);
Hosts read_hosts(const std::string & path);

// The same but for `keys`: a certificate takes a hundred times as long as the text.
Hosts parse_host_lines(const std::string & text, const std::string & file);

std::string hosts_text(const Hosts & hosts);

// For --join: "gt1." and letters that survive chat and mail; a checksum finds a cut-off line.
std::string make_invite(const Hosts & hosts);
std::string invite_text(const std::string & invite);  // the file
Hosts       parse_invite(const std::string & invite);

}  // namespace gt
