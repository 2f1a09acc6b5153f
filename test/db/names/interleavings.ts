import type { Expected, PerLevel } from '../../support/interleaving'
import type { NameInterleaving, NameStep } from '../../support/names-stage'

const levels = <T>(rc: T, rr: T, ser: T = rr): PerLevel<T> => ({ rc, rr, ser })

const begins = (...sessions: readonly NameStep[0][]): NameStep[] => sessions.map((one) => [one, 'begin', 'ok'])
/** Begins with a snapshot. */
const sees = (...sessions: readonly NameStep[0][]): NameStep[] =>
  sessions.flatMap((one) => [
    [one, 'begin', 'ok'],
    [one, 'select 1 from names limit 1', 1],
  ])
const rename = (id: number, to: string): string => `update users set handle = '${to}' where id = ${id}`
const claim = (id: number, name: string): string => `insert into orgs (id, handle) values (${id}, '${name}')`
const waited = (session: NameStep[0], expected: Expected | PerLevel<Expected>): NameStep => [session, 'await', expected]

/** Every interleaving that maintainers/protocol-names.md speaks of. */
export const interleavings: readonly NameInterleaving[] = [
  {
    name: 'two sessions rename one holder: the second follows, or is refused',
    steps: [
      ...sees('P', 'Q'),
      ['P', rename(1, 'x'), 1],
      ['Q', rename(1, 'y'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('b=users2 y=users1', 'b=users2 x=users1'),
  },
  {
    name: 'two holders want one new name',
    steps: [
      ...sees('P', 'Q'),
      ['P', rename(1, 'x'), 1],
      ['Q', claim(1, 'x'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>('23505', '40001')),
    ],
    names: 'b=users2 x=users1',
  },
  {
    name: 'two holders want one new name, and the first gives way',
    steps: [
      ...sees('P', 'Q'),
      ['P', rename(1, 'x'), 1],
      ['Q', claim(1, 'x'), 'waits'],
      ['P', 'rollback', 'ok'],
      waited('Q', 1),
      ['Q', 'commit', 'ok'],
    ],
    names: 'a=users1 b=users2 x=orgs1',
  },
  {
    name: 'a name that is given up is wanted before the end of the transaction',
    steps: [
      ...sees('P', 'Q'),
      ['P', rename(1, 'x'), 1],
      ['Q', claim(1, 'a'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, 1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=orgs1 b=users2 x=users1', 'a=orgs1 b=users2 x=users1', 'b=users2 x=users1'),
  },
  {
    name: 'a delete of the holder against a claim of its name',
    steps: [
      ...sees('P', 'Q'),
      ['P', 'delete from users where id = 1', 1],
      ['Q', claim(1, 'a'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, 1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=orgs1 b=users2', 'a=orgs1 b=users2', 'b=users2'),
  },
  {
    name: 'a delete that is taken back leaves the name',
    steps: [
      ...sees('P', 'Q'),
      ['P', 'delete from users where id = 1', 1],
      ['Q', claim(1, 'a'), 'waits'],
      ['P', 'rollback', 'ok'],
      waited('Q', '23505'),
    ],
    names: 'a=users1 b=users2',
  },
  {
    name: 'A to B while B to A: both are refused, and nobody waits',
    steps: [
      ...sees('P', 'Q'),
      ['P', rename(1, 'b'), '23505'],
      // The server tells of an error before it has let the locks go.
      ['P', 'select 1', '25P02'],
      ['Q', rename(2, 'a'), '23505'],
      ['P', 'rollback', 'ok'],
    ],
    names: 'a=users1 b=users2',
  },
  {
    name: 'an exchange in one UPDATE against a rename',
    steps: [
      ...sees('P', 'Q'),
      ['P', `update users set handle = case id when 1 then 'b' else 'a' end`, 2],
      ['Q', rename(1, 'x'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=users2 x=users1', 'a=users2 b=users1'),
  },
  {
    name: 'an exchange against a claim of one of the names',
    steps: [
      ...sees('P', 'Q'),
      ['P', `update users set handle = case id when 1 then 'b' else 'a' end`, 2],
      ['Q', claim(1, 'b'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>('23505', '40001')),
    ],
    names: 'a=users2 b=users1',
  },
  {
    name: 'a name that moves to another row while one waits for it is not taken for one that nobody has',
    given: `insert into users (id, handle) values (1, 'a'), (2, 'b'), (3, null), (4, 'd')`,
    steps: [
      ...sees('P', 'Q'),
      ['P', `update users set handle = case id when 2 then null else 'b' end where id in (2, 3)`, 2],
      ['Q', rename(1, 'b'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>('23505', '40001')),
    ],
    names: 'a=users1 b=users3 d=users4',
  },
  {
    name: 'taking back against a newcomer, once the reservation has ended',
    given: `insert into orgs (id, handle) values (1, 'a'); update orgs set handle = 'b';
      update names set until = now() - interval '1 second' where state = 'reserved'`,
    steps: [
      ...sees('P', 'Q'),
      ['P', `update orgs set handle = 'a' where id = 1`, 1],
      ['Q', `insert into users (id, handle) values (1, 'a')`, 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>('23505', '40001')),
    ],
    names: 'a=orgs1 b=orgs1?',
  },
  {
    name: 'a newcomer against taking back, once the reservation has ended',
    given: `insert into orgs (id, handle) values (1, 'a'); update orgs set handle = 'b';
      update names set until = now() - interval '1 second' where state = 'reserved'`,
    steps: [
      ...sees('P', 'Q'),
      ['P', `insert into users (id, handle) values (1, 'a')`, 1],
      ['Q', `update orgs set handle = 'a' where id = 1`, 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>('23505', '40001')),
    ],
    names: 'a=users1 b=orgs1',
  },
  {
    name: 'a reservation that has ended is wanted by two',
    given: `insert into users (id, handle) values (1, 'x'), (2, 'y');
      insert into names (namespace, text, holder, holder_column, holder_key, state, until)
        values ('handle', 'a', 'orgs', 'handle', '[9]', 'reserved', now() - interval '1 second')`,
    steps: [
      ...sees('P', 'Q'),
      ['P', rename(1, 'a'), 1],
      ['Q', rename(2, 'a'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>('23505', '40001')),
    ],
    names: 'a=users1 y=users2',
  },
  {
    name: 'a former name of a row that goes is free for others',
    given: `insert into orgs (id, handle) values (1, 'a'); update orgs set handle = 'b'`,
    steps: [
      ...sees('P', 'Q'),
      ['P', 'delete from orgs where id = 1', 1],
      ['Q', `insert into users (id, handle) values (1, 'a')`, 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, 1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=users1', 'a=users1', ''),
  },
  {
    name: 'bulk writes over two tables in opposite order: one waits for the other, and neither for ever',
    given: '',
    steps: [
      ...begins('P', 'Q', 'R'),
      ['R', `insert into users (id, handle) values (9, 'm')`, 1],
      ['P', `insert into users (id, handle) values (1, 'a'), (2, 'm'), (3, 'z')`, 'waits'],
      ['Q', `insert into orgs (id, handle) values (1, 'z'), (2, 'm'), (3, 'a')`, 'waits'],
      ['R', 'rollback', 'ok'],
      waited('P', 3),
      waited('Q', 'waits'),
      ['P', 'rollback', 'ok'],
      waited('Q', 3),
      ['Q', 'commit', 'ok'],
    ],
    names: 'a=orgs3 m=orgs2 z=orgs1',
  },
  {
    name: 'a bulk rename against one that takes the names it gives up, in opposite order',
    given: `insert into users (id, handle) values (1, 'z'); insert into users (id, handle) values (2, 'm');
      insert into users (id, handle) values (3, 'a')`,
    steps: [
      ...begins('P', 'Q', 'R'),
      ['R', `select 1 from names where text = 'm' for update`, 1],
      ['P', `update users set handle = chr(ascii(handle) + 1)`, 'waits'],
      ['Q', `insert into orgs (id, handle) values (1, 'z'), (2, 'm'), (3, 'a')`, 'waits'],
      ['R', 'rollback', 'ok'],
      waited('P', 3),
      waited('Q', 'waits'),
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(3, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=orgs3 b=users3 m=orgs2 n=users2 z=orgs1 {=users1', 'b=users3 n=users2 {=users1'),
  },
  {
    name: 'a rename locks what it gives up before what it takes, where that is the order',
    given: `insert into users (id, handle) values (1, 'a')`,
    steps: [
      ...begins('P', 'Q', 'R'),
      ['R', `insert into orgs (id, handle) values (9, 'z')`, 1],
      ['Q', rename(1, 'z'), 'waits'],
      ['P', `select 1 from names where text = 'a' for update`, 'waits'],
      ['R', 'rollback', 'ok'],
      waited('Q', 1),
      ['Q', 'commit', 'ok'],
      waited('P', levels<Expected>(0, '40001')),
    ],
    names: 'z=users1',
  },
  {
    name: 'a rename locks what it takes before what it gives up, where that is the order',
    given: `insert into users (id, handle) values (1, 'z')`,
    steps: [
      ...begins('P', 'Q', 'R'),
      ['R', `insert into orgs (id, handle) values (9, 'a')`, 1],
      ['Q', rename(1, 'a'), 'waits'],
      ['P', `select 1 from names where text = 'z' for update`, 1],
      ['R', 'rollback', 'ok'],
      waited('Q', 'waits'),
      ['P', 'rollback', 'ok'],
      waited('Q', 1),
      ['Q', 'commit', 'ok'],
    ],
    names: 'a=users1',
  },
  {
    name: 'a bulk rename locks all names in one order, and not row by row',
    given: `insert into users (id, handle) values (1, 'z'), (2, 'a')`,
    steps: [
      ...begins('P', 'Q', 'R'),
      ['R', `select 1 from names where text = 'a' for update`, 1],
      ['Q', `update users set handle = case id when 1 then 'x' else 'c' end`, 'waits'],
      ['P', `select 1 from names where text = 'z' for update`, 1],
      ['P', 'rollback', 'ok'],
      ['R', 'rollback', 'ok'],
      waited('Q', 2),
      ['Q', 'commit', 'ok'],
    ],
    names: 'c=users2 x=users1',
  },
  {
    name: 'a rename out of a chain locks its anchor',
    given: `insert into users (id, handle) values (1, 'a1'), (2, 'a2')`,
    steps: [
      ...begins('P', 'Q'),
      ['P', `select 1 from names where text = 'a1' for update`, 1],
      ['Q', rename(2, 'x'), 'waits'],
      ['P', 'rollback', 'ok'],
      waited('Q', 1),
      ['Q', 'commit', 'ok'],
    ],
    names: 'a1=users1 x=users2',
  },
  {
    name: 'a bulk delete against one that takes its names, in opposite order',
    given: `insert into users (id, handle) values (1, 'z'); insert into users (id, handle) values (2, 'm');
      insert into users (id, handle) values (3, 'a')`,
    steps: [
      ...begins('P', 'Q', 'R'),
      ['R', `select 1 from names where text = 'm' for update`, 1],
      ['P', 'delete from users', 'waits'],
      ['Q', `insert into orgs (id, handle) values (1, 'z'), (2, 'm'), (3, 'a')`, 'waits'],
      ['R', 'rollback', 'ok'],
      waited('P', 3),
      waited('Q', 'waits'),
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(3, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=orgs3 m=orgs2 z=orgs1', ''),
  },
  {
    name: 'texts of equal hash are taken by two at once',
    given: `insert into users (id, handle) values (1, 'a1'), (2, 'x'), (3, 'y')`,
    steps: [
      ...sees('P', 'Q'),
      ['P', rename(2, 'a2'), 1],
      ['Q', rename(3, 'a2'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>('23505', '40001')),
    ],
    names: 'a1=users1 a2=users2 y=users3',
  },
  {
    name: 'the anchor of a chain is renamed while another one comes to it',
    given: `insert into users (id, handle) values (1, 'a1'), (2, 'a2'), (3, 'y')`,
    steps: [
      ...sees('P', 'Q'),
      ['P', rename(1, 'x'), 1],
      ['Q', rename(3, 'a1'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a1=users3 a2=users2 x=users1', 'a2=users2 x=users1 y=users3'),
  },
  {
    name: 'a delete against one that takes a former name which has ended',
    given: `insert into orgs (id, handle) values (1, 'a'); update orgs set handle = 'b';
      update names set until = now() - interval '1 second' where state = 'reserved'`,
    steps: [
      ...sees('P', 'Q'),
      ['P', `insert into users (id, handle) values (1, 'a')`, 1],
      ['Q', 'delete from orgs where id = 1', 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=users1', 'a=users1 b=orgs1'),
  },
  {
    name: 'a delete against a row of its own table that takes a former name which has ended',
    given: `insert into orgs (id, handle) values (1, 'a'); update orgs set handle = 'b';
      update names set until = now() - interval '1 second' where state = 'reserved'`,
    steps: [
      ...sees('P', 'Q'),
      ['P', `insert into orgs (id, handle) values (2, 'a')`, 1],
      ['Q', 'delete from orgs where id = 1', 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=orgs2', 'a=orgs2 b=orgs1'),
  },
  {
    name: 'a name of a row that is gone, which an old snapshot shows, is not taken for that of the new row with its key',
    steps: [
      ...sees('P'),
      ['Q', 'delete from users where id = 1', 1],
      ['P', claim(1, 'a'), levels<Expected>(1, 1, '40001')],
      ['P', `insert into users (id, handle) values (1, 'a')`, levels<Expected>('23505', '40001', '25P02')],
    ],
    names: 'b=users2',
  },
  {
    name: 'a name of equal hash, which an old snapshot shows of a row that is gone, is claimed for the new row',
    given: `insert into users (id, handle) values (2, 'a2'), (1, 'a1')`,
    steps: [
      ...sees('P'),
      ['Q', 'delete from users where id = 1', 1],
      ['P', `insert into users (id, handle) values (1, 'a1')`, levels<Expected>(1, '40001')],
      ['P', 'commit', 'ok'],
    ],
    names: levels('a1=users1 a2=users2', 'a2=users2'),
  },
  {
    name: 'a key that is free again, while an old snapshot shows the row that had it',
    steps: [
      ...sees('P'),
      ['Q', 'delete from users where id = 2', 1],
      ['P', `insert into users (id, handle) values (2, 'x')`, levels<Expected>(1, 1, '40001')],
      // By its key it would meet the row that is gone.
      ['P', `update users set handle = 'y' where handle = 'x'`, levels<Expected>(1, 1, '25P02')],
      ['P', 'commit', 'ok'],
    ],
    names: levels('a=users1 y=users2', 'a=users1 y=users2', 'a=users1'),
  },
  {
    name: 'a delete of a name in a chain against a claim of it',
    given: `insert into users (id, handle) values (1, 'a1'), (2, 'a2')`,
    steps: [
      ...sees('P', 'Q'),
      ['P', 'delete from users where id = 2', 1],
      ['Q', claim(1, 'a2'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a1=users1 a2=orgs1', 'a1=users1'),
  },
  {
    name: 'a delete of a row with one former name, which has ended, against one that takes it',
    given: `insert into orgs (id, handle) values (1, 'a'); update orgs set handle = null;
      update names set until = now() - interval '1 second' where state = 'reserved'`,
    steps: [
      ...sees('P', 'Q'),
      ['P', `insert into users (id, handle) values (1, 'a')`, 1],
      ['Q', 'delete from orgs where id = 1', 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: 'a=users1',
  },
  {
    name: 'a key that changes against one that takes a former name of its row which has ended',
    given: `insert into orgs (id, handle) values (1, 'a'); update orgs set handle = 'b';
      update names set until = now() - interval '1 second' where state = 'reserved'`,
    steps: [
      ...sees('P', 'Q'),
      ['P', `insert into users (id, handle) values (1, 'a')`, 1],
      ['Q', 'update orgs set id = 5', 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>(1, '40001')),
      ['Q', 'commit', 'ok'],
    ],
    names: levels('a=users1 b=orgs5', 'a=users1 b=orgs1'),
  },
  {
    name: 'keys that change lock all names in one order, and not row by row',
    given: `insert into users (id, handle) values (1, 'z'), (2, 'a')`,
    steps: [
      ...begins('P', 'Q', 'R'),
      ['R', `select 1 from names where text = 'a' for update`, 1],
      ['Q', 'update users set id = id + 10', 'waits'],
      ['P', `select 1 from names where text = 'z' for update`, 1],
      ['P', 'rollback', 'ok'],
      ['R', 'rollback', 'ok'],
      waited('Q', 2),
      ['Q', 'commit', 'ok'],
    ],
    names: 'a=users12 z=users11',
  },
  {
    name: 'a claim of a name in a chain waits for the key that its row gets',
    given: `insert into users (id, handle) values (1, 'a1'), (2, 'a2')`,
    steps: [
      ...sees('P', 'Q'),
      ['P', 'update users set id = 9 where id = 2', 1],
      ['Q', claim(1, 'a2'), 'waits'],
      ['P', 'commit', 'ok'],
      waited('Q', levels<Expected>('23505', '40001')),
    ],
    names: 'a1=users1 a2=users9',
  },
]

const sequence = (name: string, given: string, statements: readonly NameStep[], names: string): NameInterleaving => ({
  name,
  given,
  steps: statements,
  names,
})
const formers = `insert into orgs (id, handle) values (1, 'a'), (2, 'b'); update orgs set handle = handle || '2'`

/** What one session does after another: the rules alone. */
export const sequences: readonly NameInterleaving[] = [
  sequence(
    'a taken name is refused',
    formers,
    [
      ['P', claim(3, 'a2'), '23505'],
      ['P', claim(3, 'a'), '23505'],
    ],
    'a=orgs1? a2=orgs1 b=orgs2? b2=orgs2',
  ),
  sequence(
    'own former names are taken back',
    formers,
    [['P', `update orgs set handle = 'a' where id = 1`, 1]],
    'a=orgs1 a2=orgs1? b=orgs2? b2=orgs2',
  ),
  sequence(
    'what has ended is free',
    `${formers}; update names set until = now() - interval '1 day' where state = 'reserved'`,
    [['P', claim(3, 'a'), 1]],
    'a=orgs3 a2=orgs1 b=orgs2? b2=orgs2',
  ),
  sequence('a delete takes all names', formers, [['P', 'delete from orgs where id = 1', 1]], 'b=orgs2? b2=orgs2'),
  sequence(
    'TRUNCATE takes all names',
    formers,
    [
      ['P', 'begin isolation level read committed', 'ok'],
      ['P', 'truncate orgs', 'ok'],
      ['P', 'commit', 'ok'],
    ],
    '',
  ),
  sequence(
    'TRUNCATE is refused where a snapshot is old',
    formers,
    [
      ['P', 'begin isolation level repeatable read', 'ok'],
      ['P', 'truncate orgs', '0A000'],
    ],
    'a=orgs1? a2=orgs1 b=orgs2? b2=orgs2',
  ),
  sequence(
    'NULL gives up a name',
    formers,
    [['P', `update orgs set handle = null where id = 1`, 1]],
    'a=orgs1? a2=orgs1? b=orgs2? b2=orgs2',
  ),
  sequence(
    'rows exchange their names',
    formers,
    [['P', `update orgs set handle = case id when 1 then 'b2' else 'a2' end`, 2]],
    'a=orgs1? a2=orgs2 b=orgs2? b2=orgs1',
  ),
  sequence(
    'columns of a row exchange their names',
    `insert into users (id, handle, nick) values (1, 'a', 'b')`,
    [['P', `update users set handle = 'b', nick = 'a'`, 1]],
    'a=users1 b=users1',
  ),
  sequence(
    'columns of a row change at once',
    `insert into users (id, handle, nick) values (1, 'a', 'b')`,
    [['P', `update users set handle = 'x', nick = 'y'`, 1]],
    'x=users1 y=users1',
  ),
  sequence(
    'a text of equal hash takes the place of the one before it',
    `insert into users (id, handle) values (1, 'a1')`,
    [['P', rename(1, 'a2'), 1]],
    'a2=users1',
  ),
  sequence(
    'texts of equal hash in one statement',
    '',
    [['P', `insert into users (id, handle) values (1, 'a1'), (2, 'a2')`, 2]],
    'a1=users1 a2=users2',
  ),
  sequence(
    'one name twice in a statement',
    '',
    [['P', `insert into users (id, handle) values (1, 'a1'), (2, 'a1')`, '23505']],
    '',
  ),
  sequence(
    'a former name of equal hash stays',
    `insert into orgs (id, handle) values (1, 'a1'); update orgs set handle = 'b'`,
    [['P', `update orgs set handle = 'a2'`, 1]],
    'a1=orgs1? a2=orgs1 b=orgs1?',
  ),
  sequence(
    'keys move up by one, and names go along once',
    `alter table orgs drop constraint orgs_pkey; alter table orgs add primary key (id) deferrable; ${formers}`,
    [['P', `update orgs set id = id + 1`, 2]],
    'a=orgs2? a2=orgs2 b=orgs3? b2=orgs3',
  ),
  sequence(
    'a trigger puts a row back',
    `create or replace function back() returns trigger language plpgsql as $$ begin
       insert into orgs (id, handle) values (old.id, old.handle); return null; end $$;
     create trigger a_back after delete on orgs for each row execute function back(); ${formers}`,
    [
      ['P', 'delete from orgs where id = 1', 1],
      ['P', 'drop trigger a_back on orgs', 'ok'],
    ],
    'a=orgs1? a2=orgs1 b=orgs2? b2=orgs2',
  ),
  sequence(
    'a trigger changes the row once more',
    `create or replace function own() returns trigger language plpgsql as $$ begin
       if new.handle !~ 'x$' then update users set handle = handle || 'x' where id = new.id; end if; return null; end $$;
     create trigger a_own after insert or update on users for each row execute function own()`,
    [
      ['P', `insert into users (id, handle) values (1, 'a')`, 1],
      ['P', rename(1, 'b'), 1],
      ['P', 'drop trigger a_own on users', 'ok'],
    ],
    'bx=users1',
  ),
]
