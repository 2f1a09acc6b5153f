import { guardOf } from '../../src/triggers/guard'
import type { TextTable } from '../../src/sql/text-table'
import { type Change, mutate } from './mutate'

/** A guard with one part taken out, to show that the tests would miss it. */
export interface Mutation {
  readonly name: string
  /** The statements of the whole guard, changed. */
  readonly guard: (table: TextTable) => readonly string[]
}

const mutation = (name: string, ...changes: readonly Change[]): Mutation => ({
  name,
  guard: (table) => mutate(name, guardOf(table).create, changes),
})

/**
 * The second line of defence: settle looks at what it finds, whatever was meant. It makes up for most parts of the
 * first, so each of these is taken out together with it.
 */
const SECOND_LINE = {
  'what became of touch and promotion is not looked at': [/IF length = 0 OR NOT holds THEN[^]+?END IF;/, ''],
  'only the anchor is compared': ['ANY (ARRAY[0, ($1).%4$I])', '0'],
  'a flagged anchor may change': ['(n.later OR n.flag)', 'n.later'],
  'a flag may be cleared': [/\s+OR o\.flag AND NOT n\.flag AND stays\.chain AND o\.live/, ''],
} as const satisfies Readonly<Record<string, Change>>

/** Parts of the second line, each taken out alone. */
export const secondLine = {
  ...SECOND_LINE,
  'children by INHERITS count': [/'ONLY %s'/g, "'%s'"],
} as const satisfies Readonly<Record<string, Change>>

export const secondLineWithout = (part: keyof typeof secondLine): Mutation => mutation(part, secondLine[part])

const firstLine = (name: string, ...changes: readonly Change[]): Mutation =>
  mutation(name, ...Object.values(SECOND_LINE), ...changes)

const LOCK = `t.%I = 0 FOR NO KEY UPDATE'`
const AGAIN = 'locked := length > 0;'
const LOCKED = 'IF length > 0'
const WITHOUT_READING = 'RETURN jsonb_populate_record(NEW, jsonb_build_object(number, coalesce(taken, highest + 1)));'
const TOUCH = /EXECUTE format\('UPDATE %s AS t SET %I = true [^;]+;/
const HIT = 'ELSIF highest IS NULL OR taken = 0 OR'
const PROMOTION = /EXECUTE format\('UPDATE %s AS t SET %I = 0, [^;]+;/

/** Parts that a table has whose softly deleted rows free their texts. */
export const softMutations: readonly Mutation[] = [
  firstLine('no promotion after a soft delete', [' OR NOT n.live)', ')']),
  firstLine('a restored row keeps its number', [
    `' OR OLD.' || deleted || ' IS NOT NULL AND NEW.' || deleted || ' IS NULL'`,
    `''`,
  ]),
  firstLine('no touch after a restore', [' OR NOT o.live)', ')']),
  firstLine(
    'softly deleted rows count as members of their chain',
    [`' AND t.' || deleted || ' IS NULL'`, `''`],
    [/[ts]_is_live := format\([^;]+;/g, ''],
  ),
]

/** A part that a partitioned table has. Without it a free text is refused, and nothing is stored twice. */
export const partitionMutation = mutation('a row takes the number of the partition that it leaves', [
  /IF holds THEN\s+RETURN NEW;/,
  'IF false THEN RETURN NEW;',
])

/** Without it, a chain can be copied only in the order of its numbers, and nothing is stored twice. */
export const copyMutation = mutation('a flagged row that is sent with number 0 is not placed', [
  " OR NEW.%s)', on_table, hash",
  " OR false AND NEW.%s)', on_table, hash",
])

/** What an interleaving must find; `a touch in the BEFORE trigger` is not here, for it stores nothing twice. */
export const mutations: readonly Mutation[] = [
  firstLine('no promotion after a delete', ["WHEN (OLD.%s)'", "WHEN (false AND OLD.%s)'"]),
  firstLine('no promotion after a move', ['SELECT o.anchor AND', 'SELECT false AND']),
  firstLine('no touch after an insert', ["WHEN (NEW.%s > 0)'", "WHEN (false AND NEW.%s > 0)'"]),
  firstLine('no touch after an update', ['CONTINUE WHEN comes', `CONTINUE WHEN (TG_OP <> 'UPDATE' AND comes)`]),
  firstLine('a touch only looks', [TOUCH, 'NULL;']),
  firstLine('a touch skips an anchor that is flagged', [/(SET %I = true WHERE t\.ctid = \$1)'/, `$1 AND NOT t.%2$$I'`]),
  firstLine('no second read', [AGAIN, `${LOCKED} THEN ${WITHOUT_READING} END IF;`]),
  firstLine('no second read after a hit', [AGAIN, `${LOCKED} AND taken > 0 THEN ${WITHOUT_READING} END IF; ${AGAIN}`]),
  firstLine('no second read after a miss', [
    AGAIN,
    `${LOCKED} AND taken IS NULL THEN ${WITHOUT_READING} END IF; ${AGAIN}`,
  ]),
  firstLine('no lock of the anchor', [LOCK, `t.%I = 0'`]),
  firstLine('no lock for a hit at number 1 and more', [HIT, 'ELSIF highest IS NULL OR taken IS NOT NULL OR']),
  firstLine('a promoted row gets no flag', ['SET %I = 0, %I = true', 'SET %I = 0, %I = t.%3$$I']),
  firstLine('a row that took number 0 again gets no flag', [TOUCH, `IF way = 2 THEN $& END IF;`]),
  firstLine('a touch that finds no anchor does not promote', [PROMOTION, `IF way = 2 THEN CONTINUE; END IF; $&`]),
  firstLine('what took number 0 again is not compared', [
    /IF holds THEN(?=\s+RAISE EXCEPTION USING ERRCODE = '23505')/,
    'IF false THEN',
  ]),
  firstLine('a client can clear the flag', [/\s+OR OLD\.%7\$s AND NEW\.%7\$s IS NOT TRUE/, '']),
]
