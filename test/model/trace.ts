/** A violation's shortest way, to be read by people. */
import type { Violation, Visit } from './explore'
import type { Part, Script } from './script'
import { COMMITTED, FREED, isFreed, NOBODY, type Version } from './state'

const TEXTS = 'ABCD'

function name(text: number, chain: number): string {
  return `${TEXTS.charAt(text)}${chain % FREED === 0 ? '' : "'"}${isFreed(chain) ? '~' : ''}`
}

function describePart(part: Part): string {
  const subject = name(part.text, part.chain)
  if (part.kind === 'delete') return `delete ${subject}`
  if (part.kind === 'update') {
    if (part.behind) return `edit ${subject}, which a trigger changes to ${name(part.toText, part.toChain)}`
    if (part.edit) return `edit ${subject}`
    if (part.toZero) return `set the number of ${subject} to 0`
    return part.clearFlag ? `clear the flag of ${subject}` : `update ${subject} to ${name(part.toText, part.toChain)}`
  }
  const conflict = part.onConflict === 'error' ? '' : ` on conflict do ${part.onConflict}`
  const stored = part.becomes === part.text ? '' : `, which a trigger changes to ${name(part.becomes, part.chain)},`
  const sent = part.copied === undefined ? '' : ` ${part.copied},`
  return `insert ${subject}${stored}${sent} ${part.fast ? 'at number 0' : 'through the guard'}${conflict}`
}

function describeStatement(statement: Script['statement']): string {
  if (typeof statement === 'string') return statement
  if (statement.kind === 'findOrCreate') return `find or create ${name(statement.text, statement.chain)}`
  return statement.kind === 'write' ? statement.parts.map(describePart).join(' + ') : statement.kind
}

export function describeScript(script: Script): string {
  const steps: string[] = []
  for (let rest: Script | undefined = script; rest !== undefined && rest.statement !== 'finished'; rest = rest.next) {
    steps.push(`${describeStatement(rest.statement)}${rest.statement === 'commit' ? ` (${rest.isolation})` : ''}`)
  }
  return steps.join('; ')
}

/** `A@0!` is flagged; `+1` created, `-1` deleted, `*1` locked by process 1; `†` dead, but seen by an old snapshot. */
function describeVersion({ text, chain, number, flag, creator, deleter, lock }: Version): string {
  const created = creator === COMMITTED ? '' : `+${creator - 1}`
  const gone = deleter === COMMITTED ? '†' : `-${deleter - 1}`
  const locked = lock === NOBODY ? '' : `*${lock - 1}`
  return `${name(text, chain)}@${number}${flag ? '!' : ''}${created}${deleter === NOBODY ? '' : gone}${locked}`
}

function describeVisit({ move, state }: Visit): string {
  const rows = state.rows.map(({ versions }) => versions.map(describeVersion).join('→'))
  return `  ${move.padEnd(30)} ${rows.join('  ') || '(no rows)'}`
}

export function describeViolation({ property, trace }: Violation): string {
  const [first] = trace
  const processes = first?.state.processes ?? []
  const scripts = processes.map((each, id) => `  process ${id}: ${describeScript(each.script)}`)
  return [property, ...scripts, ...trace.map(describeVisit)].join('\n')
}
