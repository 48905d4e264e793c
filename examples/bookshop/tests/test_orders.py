"""Tests of orders."""

from datetime import datetime

from bookshop.orders import Order, discounted, refund

MONDAY = datetime(2026, 3, 2)


def test_the_total_is_the_sum_of_the_prices():
    assert Order(1, MONDAY, [12.5, 7.5]).total == 20


def test_a_discount_is_taken_off():
    assert discounted(Order(1, MONDAY, [20.0]), 10) == 18


def test_a_refund_gives_the_money_back():
    assert refund(Order(1, MONDAY, [20.0]), 20, MONDAY) == 20
