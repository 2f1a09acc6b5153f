/** What a process does: transactions of client statements, in the words of the protocol. */
import { FREED } from './state'

export type Isolation = 'RC' | 'RR'

/** `update` writes a column of the user's, `set text` the text that was given. */
export type OnConflict = 'error' | 'nothing' | 'update' | 'set text'

/** One row's worth of a statement. `chain` stands for (scope, hash): where the text belongs. */
export type Part =
  | {
      readonly kind: 'insert'
      readonly text: number
      readonly chain: number
      /** The client sends hash and number 0: no trigger function runs. */
      readonly fast: boolean
      readonly onConflict: OnConflict
      /** What is stored: a trigger of the user's that runs after `place` may change the text, within its hash. */
      readonly becomes: number
      /** The row was stored elsewhere, as an anchor with others or at a number of 1 and more, and is sent as it was. */
      readonly copied?: 'flagged' | 'numbered'
    }
  | { readonly kind: 'delete'; readonly text: number; readonly chain: number }
  | {
      readonly kind: 'update'
      readonly text: number
      readonly chain: number
      readonly toText: number
      readonly toChain: number
      /** The client writes the number 0 into the row. */
      readonly toZero: boolean
      /** The client writes `false` into the flag. */
      readonly clearFlag: boolean
      /** Only some column of the user's is written: no trigger of the guard fires. */
      readonly edit: boolean
      /** The statement names another column, and a trigger of the user's changes the text: `place` does not run. */
      readonly behind: boolean
    }

export type Statement =
  /** Several parts are one SQL statement: rows of a bulk write, or data-modifying CTEs in this order. */
  | { readonly kind: 'write'; readonly parts: readonly Part[] }
  | { readonly kind: 'findOrCreate'; readonly text: number; readonly chain: number }
  | { readonly kind: 'savepoint' }
  | { readonly kind: 'rollbackTo' }

export interface Transaction {
  readonly isolation: Isolation
  /** Find-or-create outside a transaction: each of its statements commits by itself. */
  readonly autocommit?: boolean
  readonly statements: readonly Statement[]
}

/** The rest of a process's script, from one statement on; equal rests are one object, so that their states meet. */
export interface Script {
  readonly id: number
  readonly isolation: Isolation
  readonly autocommit: boolean
  readonly statement: Statement | 'commit' | 'finished'
  readonly next: Script | undefined
  /** Where an aborted transaction goes on: at the next transaction. */
  readonly afterAbort: Script | undefined
  /** Where an error inside a savepoint goes on: behind ROLLBACK TO. */
  readonly afterSavepoint: Script | undefined
}

const interned = new Map<string, Script>()

function node(fields: Omit<Script, 'id'>): Script {
  const { isolation, autocommit, statement, next, afterAbort, afterSavepoint } = fields
  const key = JSON.stringify([isolation, autocommit, statement, next?.id, afterAbort?.id, afterSavepoint?.id])
  const known = interned.get(key)
  if (known !== undefined) return known
  const made = { ...fields, id: interned.size }
  interned.set(key, made)
  return made
}

export const FINISHED = node({
  isolation: 'RC',
  autocommit: false,
  statement: 'finished',
  next: undefined,
  afterAbort: undefined,
  afterSavepoint: undefined,
})

export function script(transactions: readonly Transaction[]): Script {
  let rest = FINISHED
  for (const { isolation, autocommit = false, statements } of [...transactions].reverse()) {
    const afterAbort = rest
    let afterSavepoint: Script | undefined
    rest = node({ isolation, autocommit, statement: 'commit', next: rest, afterAbort, afterSavepoint })
    for (const statement of [...statements].reverse()) {
      if (statement.kind === 'rollbackTo') afterSavepoint = rest
      rest = node({ isolation, autocommit, statement, next: rest, afterAbort, afterSavepoint })
      if (statement.kind === 'savepoint') afterSavepoint = undefined
    }
  }
  return rest
}

const TEXTS = 'ABCD'

/** `A` is the text A in chain 0, `A'` the same text in chain 1 (another scope, say), `A~` a softly deleted row of it. */
export type Name = string

function at(name: Name): { text: number; chain: number } {
  const chain = name.includes("'") ? 1 : 0
  return { text: TEXTS.indexOf(name.charAt(0)), chain: name.endsWith('~') ? chain + FREED : chain }
}

export function fast(name: Name, onConflict: OnConflict = 'error'): Part {
  return { kind: 'insert', fast: true, onConflict, ...at(name), becomes: at(name).text }
}
export function slow(name: Name, onConflict: OnConflict = 'error'): Part {
  return { kind: 'insert', fast: false, onConflict, ...at(name), becomes: at(name).text }
}
export function twisted(name: Name, becomes: Name): Part {
  return { kind: 'insert', fast: false, onConflict: 'error', ...at(name), becomes: at(becomes).text }
}
/** A row as a dump, or the partition or node that it leaves, has it. `A!` is flagged. */
export function copied(name: Name): Part {
  const flagged = name.endsWith('!')
  const from = flagged ? name.slice(0, -1) : name
  const part = { kind: 'insert', fast: false, onConflict: 'error', ...at(from), becomes: at(from).text } as const
  return { ...part, copied: flagged ? 'flagged' : 'numbered' }
}
export const remove = (name: Name): Part => ({ kind: 'delete', ...at(name) })

export function change(name: Name, to: Name, extra: 'toZero' | 'clearFlag' | 'edit' | 'behind' | '' = ''): Part {
  const target = { toText: at(to).text, toChain: at(to).chain }
  const said = {
    toZero: extra === 'toZero',
    clearFlag: extra === 'clearFlag',
    edit: extra === 'edit',
    behind: extra === 'behind',
  }
  return { kind: 'update', ...at(name), ...target, ...said }
}
export const softDelete = (name: Name): Part => change(name, `${name}~`)
export const restore = (name: Name): Part => change(`${name}~`, name)
export const behind = (name: Name, to: Name): Part => change(name, to, 'behind')
export const edit = (name: Name): Part => change(name, name, 'edit')
export const takeZero = (name: Name): Part => change(name, name, 'toZero')
export const clearFlag = (name: Name): Part => change(name, name, 'clearFlag')

export const write = (...parts: readonly Part[]): Statement => ({ kind: 'write', parts })
export const findOrCreate = (name: Name): Statement => ({ kind: 'findOrCreate', ...at(name) })
export const savepoint: Statement = { kind: 'savepoint' }
export const rollbackTo: Statement = { kind: 'rollbackTo' }
