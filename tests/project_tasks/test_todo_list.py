from deputy.project_tasks.todo_list import Item, read_todo_list


def test_checkboxes_are_items_and_what_is_below_them_their_text() -> None:
    items = read_todo_list(
        "# Work\n\nSome words.\n\n- [ ] **Cache** the index\n      Why: it is slow.\n  - [x] measure\n"
        "- [x] Write docs\n* not a box\n\n## Later\n1. [ ] Ship `it`\n"
    )
    assert items[1:] == (
        Item(title="Write docs", heading="Work", is_done=True),
        Item(title="Ship it", heading="Later"),
    )
    assert items[0].title == "Cache the index"
    assert "Why: it is slow." in items[0].text
    assert "measure" in items[0].text


def test_plain_items_count_where_there_are_no_boxes() -> None:
    assert [item.title for item in read_todo_list("- one\n- two\n  - deeper\n\nprose\n\n3. three\n")] == [
        "one",
        "two",
        "three",
    ]


def test_code_is_no_list() -> None:
    assert read_todo_list("```\n- [ ] not this\n```\n- [ ] this\n") == (Item(title="this"),)
    assert read_todo_list("just prose\n") == ()
    assert read_todo_list("- [ ]\n- \n") == ()


def test_a_title_that_is_too_long_goes_whole_into_the_text() -> None:
    (item,) = read_todo_list("- [ ] " + "word " * 100)
    assert len(item.title) <= 200
    assert item.text.startswith("word word")
