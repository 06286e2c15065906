#include "tests/catch.h"
#include "tests/scratch.h"
#include "tools/train/pause.h"

using namespace gt;

TEST_CASE("active_hours_may_pass_midnight") {
    const ActiveHours night = parse_active_hours("22:00-07:30");
    CHECK(night.contains(22 * 60));
    CHECK(night.contains(0));
    CHECK(night.contains(7 * 60 + 29));
    CHECK_FALSE(night.contains(7 * 60 + 30));
    CHECK_FALSE(night.contains(21 * 60 + 59));
    const ActiveHours day = parse_active_hours("09:05-24:00");
    CHECK(day.contains(23 * 60 + 59));
    CHECK_FALSE(day.contains(9 * 60 + 4));
    CHECK(parse_active_hours("").contains(0));
    for (const char * bad :
         {"22-7", "25:00-07:00", "22:00-07:60", "22:00-07:00x", "07:00-07:00", "a"}) {
        CHECK_THAT(error_of([&] { parse_active_hours(bad); }), ContainsSubstring("as 22:00-07:00"));
    }
}

TEST_CASE("other_programs_are_busy_above_half_of_the_cores_and_until_they_use_a_quarter") {
    BusyMeter meter(4);
    double    used = 0.0, own = 0.0;
    int       second = 0;
    // others: cores that other programs use for 20 seconds, while we use all that are left
    const auto after = [&](double others) {
        bool is_busy = false;
        for (int i = 0; i < 20; ++i) {
            is_busy = meter.update(second++, used, own);
            used += 4.0;
            own += 4.0 - others;
        }
        return is_busy;
    };
    CHECK_FALSE(after(0.0));
    CHECK_FALSE(after(1.9));
    CHECK(after(2.5));
    CHECK(after(1.2));  // not yet quiet
    CHECK_FALSE(after(0.5));
    CHECK_FALSE(after(1.9));
}

TEST_CASE("a_file_named_pause_pauses_a_run") {
    const Scratch dir;
    PauseRules    rules({.folder = dir.path(), .active_hours = "", .when_busy = false});
    CHECK(rules.reason().empty());
    write_text(dir / "pause", "");
    CHECK_THAT(rules.reason(), ContainsSubstring(dir / "pause"));
    std::filesystem::remove(dir / "pause");
    CHECK(rules.reason().empty());
}
