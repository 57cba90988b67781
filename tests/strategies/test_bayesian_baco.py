from mptune.strategies.bayesian_baco import BayesianBacoStrategy
from mptune.strategies.conformance import StrategyConformance


class TestConformance(StrategyConformance):
    strategy = BayesianBacoStrategy
