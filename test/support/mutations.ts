import { guardOf } from '../../src/sql/guard'
import type { TextTable } from '../../src/sql/text-table'

/** A guard with one part taken out, to show that the tests would miss it. */
export interface Mutation {
  readonly name: string
  /** The statements of the whole guard, changed. */
  readonly guard: (table: TextTable) => readonly string[]
}

type Change = readonly [from: string | RegExp, to: string]

/** Changes the text of the statements. Every change must find its place, or the mutation would be none. */
const mutation = (name: string, ...changes: readonly Change[]): Mutation => ({
  name,
  guard: (table) => {
    let statements = guardOf(table).create
    for (const [from, to] of changes) {
      const changed = statements.map((statement) => statement.replace(from, to))
      if (changed.every((statement, index) => statement === statements[index])) {
        throw new Error(`The mutation "${name}" does not fit the guard: ${String(from)} is not in it.`)
      }
      statements = changed
    }
    return statements
  },
})

/**
 * The second line of defence: settle looks at what it finds, whatever was meant. It makes up for most parts of the
 * first, so each of these is taken out together with it.
 */
const SECOND_LINE = {
  'what became of touch and promotion is not looked at': [/IF NOT FOUND OR NOT EXISTS[^]+?END IF;/, ''],
  'only the anchor is compared': [/(s\.\S+) IN \(0, r\.\S+\)/, '$1 = 0'],
  'a flagged anchor may change': [/(NEW\.\S+ > 0) OR NEW\.[^\s)]+/, '$1'],
  'a flag may be cleared': [/\s+OR OLD\.\S+ AND NOT NEW\.[^]+?(?=\)+ IS NOT TRUE)/, ''],
} as const satisfies Readonly<Record<string, Change>>

/** Parts of the second line, each taken out alone. */
export const secondLine = {
  ...SECOND_LINE,
  'renamed tables are not noticed': [/IF plain IS NOT TRUE THEN[^]+?END IF;\s+END IF;/, ''],
  'renamed columns are not noticed': [/IF NOT EXISTS \(\s+SELECT FROM pg_catalog\.pg_trigger[^]+?END IF;/, ''],
  'children by INHERITS count': [/\(([st])\.tableoid = TG_RELID OR NOT plain\)/g, 'true'],
} as const satisfies Readonly<Record<string, Change>>

export const secondLineWithout = (part: keyof typeof secondLine): Mutation => mutation(part, secondLine[part])

const firstLine = (name: string, ...changes: readonly Change[]): Mutation =>
  mutation(name, ...Object.values(SECOND_LINE), ...changes)

const LOCK = / = 0\n {4}FOR NO KEY UPDATE;/
const AGAIN = 'locked := FOUND;'
const WITHOUT_READING = 'NEW."urlHashNumber" := coalesce(taken, last + 1); RETURN NEW;'
/** Table, flag and condition are $1, $2 and $3. */
const TOUCH = /UPDATE (.+ AS t) SET (\S+) = true\s+(WHERE [^;]+);/
const HIT = 'ELSIF last IS NULL OR taken = 0 OR'
const PROMOTION = /UPDATE .+ SET .+ = 0, /

/** Parts that a table has whose softly deleted rows free their texts. */
export const softMutations: readonly Mutation[] = [
  firstLine('no promotion after a soft delete', [/\s+OR NEW\.\S+ IS NOT NULL(?=\)\) IS NOT TRUE)/, '']),
  firstLine('a restored row keeps its number', [/\n\s+OR OLD\.\S+ IS NOT NULL AND NEW\.\S+ IS NULL/, '']),
  firstLine('no touch after a restore', [/\n\s+OR OLD\.\S+ IS NOT NULL\)/, ')']),
  firstLine('softly deleted rows count as members of their chain', [/\n\s+AND [st]\.\S+ IS NULL/g, '']),
]

/** What an interleaving must find; `a touch in the BEFORE trigger` is not here, for it stores nothing twice. */
export const mutations: readonly Mutation[] = [
  firstLine('no promotion after a delete', [/WHEN \((OLD\.[^\s)]+)\)/, 'WHEN (false AND $1)']),
  firstLine('no promotion after a move', [/\((?=TG_OP = 'DELETE')/, "TG_OP = 'DELETE' AND ("]),
  firstLine('no touch after an insert', [/WHEN \((NEW\.\S+ > 0)\)/, 'WHEN (false AND $1)']),
  firstLine('no touch after an update', [/CONTINUE WHEN (?=\(.*NEW)/, "CONTINUE WHEN TG_OP = 'UPDATE' OR "]),
  firstLine('a touch only looks', [TOUCH, 'NULL;']),
  firstLine('a touch skips an anchor that is flagged', [
    TOUCH,
    'IF NOT EXISTS (SELECT FROM $1 $3 AND t.$2) THEN $& END IF;',
  ]),
  firstLine('no second read', [AGAIN, `IF FOUND THEN ${WITHOUT_READING} END IF;`]),
  firstLine('no second read after a hit', [AGAIN, `IF FOUND AND taken > 0 THEN ${WITHOUT_READING} END IF; ${AGAIN}`]),
  firstLine('no second read after a miss', [
    AGAIN,
    `IF FOUND AND taken IS NULL THEN ${WITHOUT_READING} END IF; ${AGAIN}`,
  ]),
  firstLine('no lock of the anchor', [LOCK, ' = 0;']),
  firstLine('no lock for a hit at number 1 and more', [HIT, 'ELSIF last IS NULL OR taken IS NOT NULL OR']),
  firstLine('a promoted row gets no flag', [/(SET \S+ = 0), \S+ = true/, '$1']),
  firstLine('a row that took number 0 again gets no flag', [TOUCH, `IF way = 2 THEN $& END IF;`]),
  firstLine('a touch that finds no anchor does not promote', [PROMOTION, `IF way = 2 THEN CONTINUE; END IF; $&`]),
  firstLine('what took number 0 again is not compared', [
    /IF EXISTS \(\s+SELECT FROM \S+ AS s/,
    'IF false AND EXISTS (SELECT FROM page AS s',
  ]),
  firstLine('a client can clear the flag', [/ OR OLD\.\S+ AND NEW\.\S+ IS NOT TRUE/, '']),
]
