// comm/run/hosts.h — hosts.txt, the file that describes a run and admits a machine to it.
//
//   # comment
//   key   kJ3...                          the run's secret; written by `hub --new`
//   anna  anna.example.org:7077 up=20 down=100 data=books/
//   ben   -                     up=10 down=50
//   store s3://bucket/prefix              or file:///path: instead of a hub
//   delivery direct                       hosts with an address serve their own messages
//
// The first host with an address is the hub. '-': no address, connects to others only. Several
// addresses of one host, as seen at home, from outside, over IPv6, are separated by commas. For a hub
// that must not read messages, `hub-key ...` replaces `key ...`. An invite is the file as one line.
#pragma once

#include "comm/wire/seal.h"

#include <string>
#include <vector>

namespace gt {

struct HostEntry {
    std::string name;
    std::string address;   // host:port[,host:port...]; empty: connects to others only
    double      up   = 0;  // Mbit/s; 0: unknown
    double      down = 0;
    std::string data;
};

// What is wrong with a host's name; "": nothing.
std::string host_name_problem(const std::string & name);

// ":PORT" of its first address.
std::string port_of(const HostEntry & host);

// "[::]:PORT": all interfaces, IPv6 and IPv4.
std::string listen_address(const HostEntry & host);

struct Hosts {
    std::vector<HostEntry> hosts;
    std::string            store;           // s3://... or file:///...; empty: the hub
    bool                   direct = false;  // messages avoid the hub where possible
    RunKeys                keys;
    std::string            key, hub_key;  // as written; exactly one is set

    const HostEntry * find(const std::string & name) const;  // null: not listed
    const HostEntry * hub() const;                           // null: the run has a store
};

// `file` is for messages. Throws Error with the line number and what to do.
Hosts parse_hosts(const std::string & text, const std::string & file);
Hosts read_hosts(const std::string & path);

// The same without `keys`: deriving them takes a hundred times as long as parsing.
Hosts parse_host_lines(const std::string & text, const std::string & file);

std::string hosts_text(const Hosts & hosts);

// For --join: "gt1." and base64, safe for chat and mail, with a checksum against truncation.
std::string make_invite(const Hosts & hosts);
std::string invite_text(const std::string & invite);  // the text of hosts.txt
Hosts       parse_invite(const std::string & invite);

}  // namespace gt
