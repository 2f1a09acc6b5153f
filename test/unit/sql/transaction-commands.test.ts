import { describe, expect, test } from 'vitest'
import { transactionCommands } from '../../../src/sql/transaction-commands'

const ROLLED_BACK = [{ does: 'roll back' }]

test.each([
  'ROLLBACK',
  'rollback;',
  'ABORT',
  'abort work',
  'Rollback Transaction',
  '/* c */ ROLLBACK',
  '/* a /* nested */ one */ -- and another\n rollback and chain',
  'SELECT 1; ROLLBACK',
  ';;ROLLBACK AND NO CHAIN',
  `SELECT ';', E'\\';', $$;$$, $a$;$$;$a$, ";" -- ;\n; abort`,
])('%s rolls back the transaction', (sql) => {
  expect(transactionCommands(sql)).toEqual(ROLLED_BACK)
})

test.each(['COMMIT', 'end', 'commit and chain', 'END WORK', "PREPARE TRANSACTION 'x'", '--\ncommit transaction'])(
  '%s ends it',
  (sql) => {
    expect(transactionCommands(sql)).toEqual([{ does: 'commit' }])
  },
)

test.each([
  ["'", 'x'],
  ["'", "''"],
  ['"', '""'],
  ["E'", "\\'"],
  ["e'", "''"],
])('a literal of 20 MB does not matter: %s and many %s', (begin, part) => {
  const quoted = `${begin}${part.repeat(2e7 / part.length)};${begin.slice(-1)}`
  expect(transactionCommands(`SELECT ${quoted}; ROLLBACK`)).toEqual(ROLLED_BACK)
})

describe('of savepoints', () => {
  test.each([
    ['savepoint A', 'a'],
    ['SAVEPOINT "A"', 'A'],
    ['SAVEPOINT/**/"say ""a;"""', 'say "a;"'],
  ])('%s sets one', (sql, savepoint) => {
    expect(transactionCommands(sql)).toEqual([{ does: 'set', savepoint }])
  })

  test.each(['RELEASE a', 'release savepoint A', 'RELEASE/* */SAVEPOINT a;'])('%s releases one', (sql) => {
    expect(transactionCommands(sql)).toEqual([{ does: 'release', savepoint: 'a' }])
  })

  test.each([
    'ROLLBACK TO a',
    'rollback to savepoint A',
    '/* c */ Rollback -- x\n Work To/**/Savepoint a ;',
    'ROLLBACK TRANSACTION TO a',
    'rollback to "a"',
  ])('%s rolls back to one', (sql) => {
    expect(transactionCommands(sql)).toEqual([{ does: 'roll back to', savepoint: 'a' }])
  })

  test('several in one text are heard in their order', () => {
    expect(transactionCommands('SAVEPOINT a; SELECT 1; ROLLBACK TO a; RELEASE a')).toEqual([
      { does: 'set', savepoint: 'a' },
      { does: 'roll back to', savepoint: 'a' },
      { does: 'release', savepoint: 'a' },
    ])
  })
})

test.each([
  'SELECT 1',
  "ROLLBACK PREPARED 'x'",
  "COMMIT PREPARED 'x'",
  '-- ROLLBACK',
  '/* ; ROLLBACK */',
  '/* ROLLBACK',
  "SELECT '; ROLLBACK'",
  'SELECT $$; ROLLBACK',
  'PREPARE p AS SELECT 1',
  'release',
  'endless',
])('%s does nothing to it', (sql) => {
  expect(transactionCommands(sql)).toEqual([])
})

test('of SQL with parameters, which is one statement, what follows is not looked at', () => {
  expect(transactionCommands('SELECT $1; ROLLBACK', true)).toEqual([])
  expect(transactionCommands('rollback', true)).toEqual(ROLLED_BACK)
})
