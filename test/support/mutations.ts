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

/** Leaves out the one trigger whose statement holds all of these. */
const without = (name: string, ...parts: readonly string[]): Mutation => ({
  name,
  guard: (table) => {
    const { create } = guardOf(table)
    const kept = create.filter((statement) => !parts.every((part) => statement.includes(part)))
    if (kept.length !== create.length - 1) throw new Error(`The mutation "${name}" does not fit the guard.`)
    return kept
  },
})

const LOCK = / FOR NO KEY UPDATE;/
const SECOND_READ = /(FOR NO KEY UPDATE;\s+IF FOUND THEN\s+)(SELECT [^;]+;)/
/** Table, flag and condition are $1, $2 and $3. */
const TOUCH = /UPDATE (.+ AS t) SET (.+) = true WHERE (.+) RETURNING t\.\* INTO anchor;/
const LOOK = 'SELECT t.* INTO anchor FROM $1 WHERE $3;'
const HIT = 'IF NOT stays AND (last IS NULL OR taken = 0) THEN'

/** What an interleaving must find; `a touch in the BEFORE trigger` is not here, for it stores nothing twice. */
export const mutations: readonly Mutation[] = [
  without('no promotion after a delete', 'CREATE TRIGGER', 'AFTER DELETE'),
  without('no promotion after a move', 'CREATE TRIGGER', 'AFTER UPDATE', `('old')`),
  without('no touch after an insert', 'CREATE TRIGGER', 'AFTER INSERT'),
  without('no touch after an update', 'CREATE TRIGGER', 'AFTER UPDATE', `('new')`),
  mutation('a touch only looks', [TOUCH, LOOK]),
  mutation('a touch skips an anchor that is flagged', [
    TOUCH,
    `${LOOK} IF NOT anchor.$2 THEN UPDATE $1 SET $2 = true WHERE $3 RETURNING t.* INTO anchor; END IF;`,
  ]),
  mutation('no second read', [SECOND_READ, '$1']),
  mutation('no second read after a hit', [SECOND_READ, '$1IF taken IS NULL THEN $2 END IF;']),
  mutation('no second read after a miss', [SECOND_READ, '$1IF taken IS NOT NULL THEN $2 END IF;']),
  mutation('no second read by an update', [SECOND_READ, `$1IF TG_OP = 'INSERT' THEN $2 END IF;`]),
  mutation('no lock of the anchor', [LOCK, ';']),
  mutation(
    'no lock for a hit at number 1 and more',
    [HIT, 'IF NOT stays AND (last IS NULL OR taken IS NOT NULL) THEN taken := coalesce(taken, 0);'],
    [/(taken := coalesce\(taken, 0\);\s+NEW\..+ := )0;/, '$1taken;'],
  ),
  mutation(
    'no lock for a change in place',
    ['IF own = 0 THEN', 'IF stays THEN'],
    ['coalesce(taken, 0)', 'coalesce(taken, own)'],
  ),
  mutation('the anchor changes in place without a look at the chain', ['coalesce(taken, 0)', '0']),
  mutation('a promoted row gets no flag', [/(SET .+ = 0), .+ = true/, '$1']),
  mutation('a row that took number 0 again gets no flag', [
    TOUCH,
    `IF TG_ARGV[0] = 'new' THEN $& ELSE ${LOOK} END IF;`,
  ]),
  mutation('a touch that finds no anchor does not promote', [
    /UPDATE .+ SET .+ = 0, /,
    `IF TG_ARGV[0] = 'new' THEN RETURN NULL; END IF; $&`,
  ]),
  mutation('what took number 0 again is not compared', [/PERFORM 1 (FROM .+ anchor\..+);/, 'PERFORM 1 $1 AND false;']),
  mutation('a client can clear the flag', [/ OR \(OLD\..+ AND NEW\..+ IS NOT TRUE\)/, '']),
]
