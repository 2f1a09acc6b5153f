import { all, quote, transition } from '../../sql/identifier'
import {
  indented,
  keptScopes,
  lookedAt,
  lookTrigger,
  NOTED,
  NUMBERS_PROTOCOL_VERSION,
  raiseNumber,
  refuseFamily,
  refuseOtherColumns,
  refuseOtherTables,
} from './scopes'
import {
  allEqual,
  beforeStart,
  byNumberDown,
  executed,
  isCounted,
  placed,
  type Placed,
  sameScopes,
  scopeOf,
  standsOn,
} from './fragments'
import { type NumberTable, scopeKey, scopesName } from '../../sql/numbers'
import { SQLSTATE } from '../../sql/sqlstate'
import { type RelationName, type Trigger, triggerOn, type TriggerSet, triggerSet } from '../../sql/trigger-set'
import { equal, field } from '../../sql/text-table'

/** The names of the transition tables. */
const transitions = ({ table }: NumberTable): readonly [gone: string, came: string] => [
  transition('gone', table),
  transition('came', table),
]

/**
 * The parts of a scope that count inserted rows in turn, and the numbers that each part counts at a time. While a
 * snapshot is open, no version of a part can be removed, and every look-up reads all of them.
 */
const [PARTS, NUMBERS_OF_A_PART] = [64, 256]

/**
 * Runs AFTER a statement, and updates the counts of its scopes by one statement, in the order of the scopes. It only
 * adds to counts and never sets them. Therefore each of several triggers does its part, in any order, and independent
 * of what other triggers write meanwhile.
 *
 * Part 0 of a scope is its mutex, which an INSERT holds since its rows were placed. It counts all other changes.
 */
function countBody(table: NumberTable, adopting: boolean): string {
  const key = scopeKey(table)
  const [gone, came] = transitions(table)
  const highest = `greatest(pg_catalog.max(c.${quote(table.number)}), 0)`
  const live = (row: string): string =>
    [...isCounted(table, row), ...(adopting ? [`${field(row, table.number)} IS NOT NULL`] : [])].join(' AND ') || 'true'
  const rows = (name: string, sign: string): string =>
    `SELECT ${[...scopeOf(table, name).map((one, at) => `${one} AS ${key[at] ?? ''}`), `${sign}1 AS n`].join(', ')}
      FROM ${name} WHERE ${live(name)}`
  const add = (part: string, changes: string, by: readonly string[], total: string): string => `
    INSERT INTO ${scopesName(table)} AS k (${[...key, 'part', 'n'].join(', ')})
    SELECT ${[...by, part].join(', ')},
      ${total}
    FROM ${changes}${group(by)}
    HAVING ${total} OPERATOR(pg_catalog.<>) 0${order(by)}
    ON CONFLICT (${[...key, 'part'].join(', ')}) DO UPDATE SET n = k.n OPERATOR(pg_catalog.+) excluded.n;`
  const inTurn = `
      (${highest} OPERATOR(pg_catalog./) ${NUMBERS_OF_A_PART} OPERATOR(pg_catalog.%) ${PARTS})::pg_catalog.int2`
  return `
#variable_conflict use_column
DECLARE
  plain boolean := ${standsOn(table)};
  ours boolean;
  shard pg_catalog.text;
BEGIN${refuseOtherTables(table)}
  IF TG_OP OPERATOR(pg_catalog.=) 'INSERT' THEN${add(inTurn, `${came} AS c WHERE ${live('c')}`, scopeOf(table, 'c'), 'pg_catalog.count(*)')}
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' THEN${add(
    '0',
    `(
      ${rows(gone, '-')} UNION ALL
      ${rows(came, '')}
    ) AS c`,
    scopeKey(table, 'c'),
    'pg_catalog.sum(c.n)',
  )}
  ELSIF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN${indented(refuseOtherColumns(table))}${add('0', `${gone} AS c WHERE ${live('c')}`, scopeOf(table, 'c'), 'OPERATOR(pg_catalog.-) pg_catalog.count(*)')}
  ELSE
    -- As the rows go: whatever the snapshot of the transaction shows.
    TRUNCATE ${scopesName(table)};
  END IF;
  IF FOUND THEN${indented(refuseFamily(table))}
  END IF;
  RETURN NULL;
END
`
}

/**
 * The parts of a scope that hold the highest number of removed rows. The row's number selects the part, so that deletes
 * seldom wait for each other. Their mutex is not part 0, so that no delete waits for inserts.
 */
const GONE = [-1, -2, -3, -4, -5, -6, -7, -8]

const isGone = (table: NumberTable, row: string): string[] => [
  ...allEqual(scopeKey(table, 'k'), scopeOf(table, row)),
  'k.part OPERATOR(pg_catalog.<) 0',
]

/** The highest number in the scope of a row. */
const newestOf = (table: NumberTable, { rows, row }: Placed): string => `SELECT t.${quote(table.number)}
    FROM ${rows} AS t
    WHERE ${all(6, ...sameScopes(table, 't', row), ...(row === '$1' ? [] : [OF_RELATION])) || 'true'}
    ORDER BY ${byNumberDown(table, 't')} LIMIT 1`

/** How a function writes statements: as they are, or for a shard. */
interface Written {
  readonly of: Placed
  readonly run: (sql: string) => string
  /** Whether the last one met a row. */
  readonly found: string
  /** @param value an expression that may be a query */
  readonly take: (value: string, into: string) => string
}

function writing(table: NumberTable, row: 'NEW' | 'OLD', inShard: boolean): Written {
  const of = placed(table, row, inShard)
  return inShard
    ? {
        of,
        run: (sql) => `${executed(sql, row)}\n    GET DIAGNOSTICS met = ROW_COUNT;`,
        found: 'met OPERATOR(pg_catalog.>) 0',
        take: (value, into) => executed(`SELECT ${value}`, row, into),
      }
    : {
        of,
        run: (sql) => `${sql.replace(/^SELECT/, 'PERFORM')};`,
        found: 'FOUND',
        take: (value, into) => `${into} := ${value};`,
      }
}

/**
 * Finds the highest number of the rows that exist and of those that were removed. One snapshot shows a row or its
 * number. A snapshot from before the row was inserted shows neither. Above READ COMMITTED the lock fails if a number
 * has been remembered since.
 */
const lockGone = (table: NumberTable, { of, run }: Written): string => `IF NOT pg_catalog.starts_with(
    pg_catalog.current_setting('transaction_isolation'), 'read '
  ) THEN
    ${run(`INSERT INTO ${of.scopes} (${[...scopeKey(table), 'part', 'n'].join(', ')})
    VALUES ${GONE.map((part) => `(${[...scopeOf(table, of.row), part, '0'].join(', ')})`).join(',\n      ')}
    ON CONFLICT DO NOTHING`)}
    ${run(`SELECT FROM ${of.scopes} AS k
    WHERE ${all(6, ...isGone(table, of.row))}
    FOR NO KEY UPDATE`)}
  END IF;
  `

const highestOf = (table: NumberTable, of: Placed): string =>
  table.reuse === false
    ? `greatest((
    ${newestOf(table, of)}
  ), (
    SELECT pg_catalog.max(k.last) FROM ${of.scopes} AS k
    WHERE ${all(6, ...isGone(table, of.row))}
  ))`
    : `(
    ${newestOf(table, of)}
  )`

/**
 * Runs BEFORE UPDATE OR DELETE, and remembers the number of a row that leaves its scope. After the statement is too
 * late, because it may insert a row too. A row in the middle counts as well: a snapshot from before it shows neither it
 * nor the rows above it. It remembers the highest number of the scope, so that of many rows only the first one writes.
 */
function keepBody(table: NumberTable): string {
  const [number, key] = [quote(table.number), scopeKey(table)]
  const isKept = ({ scopes, row }: Placed): string => `EXISTS (
    SELECT FROM ${scopes} AS k
    WHERE ${all(6, ...isGone(table, row), `k.last OPERATOR(pg_catalog.>=) ${row}.${number}`)}
  )`
  const part = (row: string): string =>
    `((-1) OPERATOR(pg_catalog.-) pg_catalog.abs(${row}.${number} OPERATOR(pg_catalog.%) ${GONE.length}))::pg_catalog.int2`
  const keep = (
    of: Placed,
    where = '',
  ): string => `INSERT INTO ${of.scopes} AS k (${[...key, 'part', 'n', 'last'].join(', ')})
    SELECT
      ${[...scopeOf(table, of.row), part(of.row), '0'].join(',\n      ')},
      greatest(${of.row}.${number}, (
        ${newestOf(table, of).replaceAll('\n', '\n    ')}
      ))${where}
    ON CONFLICT (${[...key, 'part'].join(', ')}) DO UPDATE SET last = greatest(k.last, excluded.last)`
  const [here, inShard] = [placed(table, 'OLD', false), placed(table, 'OLD', true)]
  return `
#variable_conflict use_column
DECLARE
  plain boolean := ${standsOn(table)};
  ours boolean;${table.count ? '' : '\n  spread boolean;'}
  shard pg_catalog.text;
BEGIN${refuseOtherTables(table)}
  IF TG_OP OPERATOR(pg_catalog.=) 'TRUNCATE' THEN${
    table.count
      ? ''
      : `
    IF spread THEN
      -- Citus has the shards, which a trigger of TRUNCATE cannot reach: no number is given again.
      RETURN NULL;
    END IF;`
  }
    TRUNCATE ${scopesName(table)};
    RETURN NULL;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' OR TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT'
    OR pg_catalog.pg_partition_root(TG_RELID) IS NOT NULL
  THEN${indented(refuseOtherColumns(table))}
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT' THEN
    RETURN NULL;
  END IF;
  IF shard IS NOT NULL AND OLD.${number} IS NOT NULL THEN
    ${executed(keep(inShard, `\n    WHERE NOT ${isKept(inShard)}`), 'OLD')}
  ELSIF OLD.${number} IS NOT NULL AND NOT ${isKept(here)} THEN
    ${keep(here)};
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'DELETE' THEN
    RETURN OLD;
  END IF;
  RETURN NEW;
END
`
}

/** Children by INHERITS have numbers of their own. */
const OF_RELATION = '(t.tableoid OPERATOR(pg_catalog.=) TG_RELID OR NOT plain)'

function keepTriggers(table: NumberTable, runs: string): Trigger[] {
  const [was, is] = [`OLD.${quote(table.number)}`, `NEW.${quote(table.number)}`]
  const stays = [...sameScopes(table, 'OLD', 'NEW'), `${was} OPERATOR(pg_catalog.=) ${is}`]
  const trigger = (event: (typeof EVENTS)[number], more: Partial<Parameters<typeof triggerOn>[1]> = {}): Trigger =>
    triggerOn(tableOf(table), { name: `${runs}_${event}`, time: 'BEFORE', events: [event], runs, ...more })
  return [
    trigger('update', { when: [`(${stays.join('\n    AND ')}) IS NOT TRUE`] }),
    trigger('delete'),
    trigger('delete', { name: `${runs}_look`, each: 'STATEMENT' }),
    // With a count, the trigger of the count truncates the table of scopes.
    ...(table.count ? [] : [trigger('truncate', { each: 'STATEMENT' })]),
  ]
}

const group = (by: readonly string[]): string => (by.length === 0 ? '' : ` GROUP BY ${by.join(', ')}`)
const order = (by: readonly string[]): string => (by.length === 0 ? '' : ` ORDER BY ${by.join(', ')}`)

/**
 * Returns the triggers that number rows and keep the count. docs/numbers.md explains how, and why that is enough.
 *
 * @param adopting whether a command numbers the rows of the table. Rows that are written have no number until then, and
 *   only rows with a number count
 */
export function numberTriggers(table: NumberTable, adopting = false): TriggerSet {
  const { scope, number, deleted } = table
  const [place, count, keep] = [nameOf(table, 'place'), nameOf(table, 'count'), nameOf(table, 'keep')]
  return triggerSet({
    kind: 'numbers',
    name: table.name,
    table: { schema: table.schema, name: table.table },
    columns: {
      number,
      ...Object.fromEntries(scope.map(({ name }, position) => [`scope ${position}`, name])),
      ...(deleted === undefined ? {} : { deleted }),
    },
    tables: [keptScopes(table)],
    docs: 'docs/numbers.md',
    functions: [
      {
        name: place,
        body: adopting ? leaveUnnumberedBody(table) : placeNumberBody(table),
        says: adopting
          ? 'takes its number from a row that leaves its scope.'
          : 'gives a row the number after the highest of its scope.',
      },
      ...(table.count
        ? [{ name: count, body: countBody(table, adopting), says: 'counts the rows of each scope.' }]
        : []),
      ...(table.reuse === false
        ? [
            {
              name: keep,
              body: keepBody(table),
              says: 'remembers the highest number of the rows that have left a scope.',
            },
          ]
        : []),
    ],
    triggers: (schema) => [
      ...placeTriggers({ ...table, schema }, place),
      ...(table.count ? EVENTS.map((event) => statementTrigger({ ...table, schema }, count, event)) : []),
      ...(table.reuse === false ? keepTriggers({ ...table, schema }, keep) : []),
    ],
    note: {
      protocol: NUMBERS_PROTOCOL_VERSION,
      ...(adopting ? { adopting } : {}),
      ...Object.fromEntries(NOTED.map((key) => [key, table[key]])),
      prefix: table.triggers,
    },
  })
}

const EVENTS = ['insert', 'update', 'delete', 'truncate'] as const

const nameOf = (table: NumberTable, suffix: string): string => `${table.triggers}_${suffix}`

const tableOf = ({ schema, table }: NumberTable): RelationName => ({ schema, name: table })

function placeTriggers(table: NumberTable, runs: string): Trigger[] {
  const number = `NEW.${quote(table.number)} IS NULL`
  const changed = `(${equal(field('OLD', table.number), field('NEW', table.number))}) IS NOT TRUE`
  const same = sameScopes(table, 'OLD', 'NEW')
  const moved = same.length === 0 ? [] : [`(${same.join('\n    AND ')}) IS NOT TRUE`]
  const trigger = (event: 'insert' | 'update', when: readonly string[]): Trigger =>
    triggerOn(tableOf(table), {
      name: nameOf(table, `place_${event}`),
      time: 'BEFORE',
      events: [event],
      when,
      runs,
    })
  // The index decides about a row that has a number, such as a restored one. With a count the trigger fires for it all
  // the same, because its statement may have named a partitioned parent. Without reuse the row takes the mutex.
  // Otherwise it could be inserted and deleted while an insert that was given its number waits at another index. The
  // UPDATE trigger names no columns, because another trigger may derive the scope.
  return [
    triggerOn(tableOf(table), {
      name: lookTrigger(table),
      time: 'BEFORE',
      events: ['insert', 'update'],
      columns: lookedAt(table),
      each: 'STATEMENT',
      runs,
    }),
    trigger('insert', table.count || table.reuse === false ? [] : [number]),
    trigger('update', [...moved, table.reuse === false ? changed : number]),
  ]
}

function statementTrigger(table: NumberTable, runs: string, event: (typeof EVENTS)[number]): Trigger {
  const [gone, came] = transitions(table)
  const [was, is] = [`OLD TABLE AS ${gone}`, `NEW TABLE AS ${came}`]
  const referencing = { insert: is, update: `${was} ${is}`, delete: was, truncate: undefined }[event]
  return triggerOn(tableOf(table), {
    name: `${runs}_${event}`,
    time: 'AFTER',
    events: [event],
    each: 'STATEMENT',
    ...(referencing === undefined ? {} : { referencing }),
    runs,
  })
}

/** Runs BEFORE INSERT OR UPDATE, while a table is adopted. A given number is kept. */
const leaveUnnumberedBody = ({ number }: NumberTable): string => `
BEGIN
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT' THEN
    RETURN NULL;
  END IF;
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND NEW.${quote(number)} OPERATOR(pg_catalog.=) OLD.${quote(number)} THEN
    NEW.${quote(number)} := NULL;
  END IF;
  RETURN NEW;
END
`

/** The name of the trigger that counts what an UPDATE changes. */
export const countsUpdates = (table: NumberTable): string => nameOf(table, 'count_update')

/** The highest number of each type. */
export const HIGHEST: Readonly<Record<string, string>> = {
  smallint: '32767',
  integer: '2147483647',
  bigint: '9223372036854775807',
}

/**
 * Takes the number after the highest of the scope, BEFORE INSERT OR UPDATE. For a statement, it only checks if it can.
 *
 * The scope's row in the table of scopes is its mutex, and is made if it does not exist. Sessions wait for it in one
 * line. Every SELECT takes a new snapshot at READ COMMITTED because the function is VOLATILE. The one after the lock
 * shows what earlier holders have committed, and nobody else can add to it.
 */
function placeNumberBody(table: NumberTable): string {
  const [number, scope] = [quote(table.number), scopeOf(table, 'NEW')]
  const most = HIGHEST[table.type] ?? HIGHEST['integer']
  return `
#variable_conflict use_variable
DECLARE
  plain boolean := ${standsOn(table)};
  ours boolean;${table.count ? '' : '\n  spread boolean;'}
  shard pg_catalog.text;
  met bigint;
  newest bigint;
BEGIN
  -- Once for a statement that names the columns, unless it may have named the whole of a partition.
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' OR TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT'
    OR pg_catalog.pg_partition_root(TG_RELID) IS NOT NULL
  THEN${indented(`${refuseOtherColumns(table)}${table.count ? refuseFamily(table) : ''}`)}
  END IF;
  IF TG_LEVEL OPERATOR(pg_catalog.=) 'STATEMENT' THEN
    RETURN NULL;
  END IF;${refuseOtherTables(table)}
  IF TG_OP OPERATOR(pg_catalog.=) 'UPDATE' AND NEW.${number} OPERATOR(pg_catalog.=) OLD.${number} THEN
    -- Who moves a row and gives it no other number means the next one there.
    NEW.${number} := NULL;
  END IF;${letNullsPass(scope)}
  IF shard IS NULL THEN${findNewest(table, writing(table, 'NEW', false))}
  ELSE${findNewest(table, writing(table, 'NEW', true))}
  END IF;
  IF NEW.${number} IS NULL AND newest OPERATOR(pg_catalog.>=) ${most} THEN
    ${raiseNumber(table, atTheEnd(table))}
  END IF;
  NEW.${number} := coalesce(NEW.${number}, greatest(newest, ${beforeStart(table)}) OPERATOR(pg_catalog.+) 1);
  RETURN NEW;
END
`
}

/** Waits until nobody else can add a row to the scope before this transaction ends, and then reads its highest number. */
const findNewest = (table: NumberTable, { of, run, found, take }: Written): string =>
  indented(`
  LOOP
    ${run(`SELECT FROM ${of.scopes} AS k
    WHERE ${all(6, ...allEqual(scopeKey(table, 'k'), scopeOf(table, of.row)), 'k.part OPERATOR(pg_catalog.=) 0')}
    FOR NO KEY UPDATE`)}
    EXIT WHEN ${found};
    ${run(`INSERT INTO ${of.scopes} (${[...scopeKey(table), 'part', 'n'].join(', ')})
    VALUES (${[...scopeOf(table, of.row), '0', '0'].join(', ')}) ON CONFLICT DO NOTHING`)}
    EXIT WHEN ${found};
  END LOOP;
  ${table.reuse === false ? lockGone(table, { of, run, found, take }) : ''}${take(highestOf(table, of), 'newest')}`)

const atTheEnd = ({ reuse }: NumberTable): Parameters<typeof raiseNumber>[1] => ({
  sqlstate: SQLSTATE.outOfRange,
  message: 'a row of the scope has the highest number that its type can hold',
  hint:
    reuse === false
      ? 'The number is not given again. Make the column a bigint.'
      : 'Give that row a lower number or delete it, or make the column a bigint.',
})

/** Lets NULLs in the scope pass, because the columns themselves refuse them. */
const letNullsPass = (scope: readonly string[]): string =>
  scope.length === 0
    ? ''
    : `
  IF ${scope.map((one) => `${one} IS NULL`).join(' OR ')} THEN
    RETURN NEW;
  END IF;`
