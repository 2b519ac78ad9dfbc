from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SettingsRequest(_message.Message):
    __slots__ = ("protocol", "name")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    name: str
    def __init__(self, protocol: _Optional[int] = ..., name: _Optional[str] = ...) -> None: ...

class SettingsReply(_message.Message):
    __slots__ = ("agent", "settings", "starts")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    STARTS_FIELD_NUMBER: _ClassVar[int]
    agent: int
    settings: str
    starts: int
    def __init__(self, agent: _Optional[int] = ..., settings: _Optional[str] = ..., starts: _Optional[int] = ...) -> None: ...

class FromAgent(_message.Message):
    __slots__ = ("join", "report", "heartbeat", "leave", "fetch")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    REPORT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    FETCH_FIELD_NUMBER: _ClassVar[int]
    join: Join
    report: Report
    heartbeat: Heartbeat
    leave: Leave
    fetch: Fetch
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., report: _Optional[_Union[Report, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., fetch: _Optional[_Union[Fetch, _Mapping]] = ...) -> None: ...

class FromServer(_message.Message):
    __slots__ = ("welcome", "task", "refusal", "heartbeat", "finished")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    TASK_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    FINISHED_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    task: Task
    refusal: Refusal
    heartbeat: Heartbeat
    finished: Finished
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., task: _Optional[_Union[Task, _Mapping]] = ..., refusal: _Optional[_Union[Refusal, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., finished: _Optional[_Union[Finished, _Mapping]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("protocol", "name", "fingerprint", "parameters")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    name: str
    fingerprint: str
    parameters: int
    def __init__(self, protocol: _Optional[int] = ..., name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., parameters: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("agent", "lease_seconds")
    AGENT_FIELD_NUMBER: _ClassVar[int]
    LEASE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    agent: int
    lease_seconds: float
    def __init__(self, agent: _Optional[int] = ..., lease_seconds: _Optional[float] = ...) -> None: ...

class TaskId(_message.Message):
    __slots__ = ("epoch", "counter")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    COUNTER_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    counter: int
    def __init__(self, epoch: _Optional[int] = ..., counter: _Optional[int] = ...) -> None: ...

class Moments(_message.Message):
    __slots__ = ("count", "mean", "m2", "name")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    MEAN_FIELD_NUMBER: _ClassVar[int]
    M2_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    count: float
    mean: bytes
    m2: bytes
    name: str
    def __init__(self, count: _Optional[float] = ..., mean: _Optional[bytes] = ..., m2: _Optional[bytes] = ..., name: _Optional[str] = ...) -> None: ...

class Task(_message.Message):
    __slots__ = ("task_id", "version", "theta", "statistics", "checksum")
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    THETA_FIELD_NUMBER: _ClassVar[int]
    STATISTICS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    task_id: TaskId
    version: int
    theta: bytes
    statistics: _containers.RepeatedCompositeFieldContainer[Moments]
    checksum: int
    def __init__(self, task_id: _Optional[_Union[TaskId, _Mapping]] = ..., version: _Optional[int] = ..., theta: _Optional[bytes] = ..., statistics: _Optional[_Iterable[_Union[Moments, _Mapping]]] = ..., checksum: _Optional[int] = ...) -> None: ...

class Report(_message.Message):
    __slots__ = ("task_id", "version", "dtype", "payload", "moments", "checksum", "steps", "returns", "lengths", "extra", "scalars", "agent")
    class ExtraEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    class ScalarsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    TASK_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    MOMENTS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    EXTRA_FIELD_NUMBER: _ClassVar[int]
    SCALARS_FIELD_NUMBER: _ClassVar[int]
    AGENT_FIELD_NUMBER: _ClassVar[int]
    task_id: TaskId
    version: int
    dtype: str
    payload: bytes
    moments: _containers.RepeatedCompositeFieldContainer[Moments]
    checksum: int
    steps: int
    returns: _containers.RepeatedScalarFieldContainer[float]
    lengths: _containers.RepeatedScalarFieldContainer[int]
    extra: _containers.ScalarMap[str, float]
    scalars: _containers.ScalarMap[str, float]
    agent: int
    def __init__(self, task_id: _Optional[_Union[TaskId, _Mapping]] = ..., version: _Optional[int] = ..., dtype: _Optional[str] = ..., payload: _Optional[bytes] = ..., moments: _Optional[_Iterable[_Union[Moments, _Mapping]]] = ..., checksum: _Optional[int] = ..., steps: _Optional[int] = ..., returns: _Optional[_Iterable[float]] = ..., lengths: _Optional[_Iterable[int]] = ..., extra: _Optional[_Mapping[str, float]] = ..., scalars: _Optional[_Mapping[str, float]] = ..., agent: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Leave(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Fetch(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Refusal(_message.Message):
    __slots__ = ("reason", "final")
    REASON_FIELD_NUMBER: _ClassVar[int]
    FINAL_FIELD_NUMBER: _ClassVar[int]
    reason: str
    final: bool
    def __init__(self, reason: _Optional[str] = ..., final: _Optional[bool] = ...) -> None: ...

class Finished(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusReply(_message.Message):
    __slots__ = ("status",)
    STATUS_FIELD_NUMBER: _ClassVar[int]
    status: str
    def __init__(self, status: _Optional[str] = ...) -> None: ...
