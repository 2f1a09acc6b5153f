import { findOrCreate, findOrCreateMany } from '../../../src'
import type { Action, Writer } from '../action'
import { StressLink } from '../entities'
import { anyKey, type Subject } from '../subject'

const RESOLVE = { relations: 'findOrCreate' } as const

const textOf = ({ random }: Writer, subject: Subject): string => anyKey(subject, random).text

const linkOf = (writer: Writer, subject: Subject): { text: string; page: { text: string } } => ({
  text: textOf(writer, subject),
  page: { text: textOf(writer, subject) },
})

/** Links to pages, each with a unique text; whoever deletes a page deletes its links. */
export const nestedActions: readonly Action[] = [
  {
    name: "findOrCreate with relations: 'findOrCreate'",
    weight: 4,
    run: async (writer, subject) => {
      const values = linkOf(writer, subject)
      const { entity, created } = await findOrCreate(writer.manager, StressLink, values, RESOLVE)
      verify(writer, values, { entity, created })
    },
  },
  {
    name: "findOrCreateMany with relations: 'findOrCreate'",
    weight: 3,
    run: async (writer, subject) => {
      const inputs = Array.from({ length: 1 + writer.random.int(6) }, () => linkOf(writer, subject))
      const results = await findOrCreateMany(writer.manager, StressLink, inputs, RESOLVE)
      for (const [index, values] of inputs.entries()) {
        const result = results[index]
        if (!result) writer.journal.violate('a nested findOrCreateMany left a gap')
        else if ('error' in result) throw result.error
        else if (result.created) verify(writer, values, result)
        else verify(writer, { text: values.text }, result)
      }
    },
  },
  {
    name: 'softDelete() of a link',
    weight: 3,
    run: async (writer, subject) => {
      await writer.manager.softDelete(StressLink, { text: textOf(writer, subject) })
    },
  },
  {
    name: "findOrCreate with deleted: 'restore'",
    weight: 4,
    run: async (writer, subject) => {
      const { manager, journal } = writer
      const text = textOf(writer, subject)
      const { entity } = await findOrCreate(manager, StressLink, { text }, { deleted: 'restore' })
      if (journal.troubled) return
      verify(writer, { text }, { entity, created: false })
      if (entity.deletedAt !== null) journal.surprise(`a caller restored "${text}" and got a row that is deleted`)
    },
  },
  {
    name: "findOrCreateMany with deleted: 'restore'",
    weight: 2,
    run: async (writer, subject) => {
      const inputs = Array.from({ length: 1 + writer.random.int(6) }, () => ({ text: textOf(writer, subject) }))
      const results = await findOrCreateMany(writer.manager, StressLink, inputs, { deleted: 'restore' })
      for (const [index, values] of inputs.entries()) {
        const result = results[index]
        if (!result) writer.journal.violate('findOrCreateMany left a gap')
        else if ('error' in result) throw result.error
        else verify(writer, values, result)
      }
    },
  },
]

interface Got {
  readonly entity: StressLink
  readonly created: boolean
}

function verify(
  { journal }: Writer,
  { text, page }: { readonly text: string; readonly page?: { readonly text: string } },
  { entity, created }: Got,
): void {
  if (journal.troubled) return
  if (entity.text !== text) journal.surprise(`a caller asked for a link "${text}" and got "${entity.text}"`)
  const found = entity.page?.text
  if (created && page && found !== page.text) {
    journal.surprise(`a caller created a link to "${page.text}" and got "${found}"`)
  }
}
