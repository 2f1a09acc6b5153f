import { url } from '../../src/text'
import { entity, plain, text } from './entity'

/** A page with a title whose URL is normalized, for test files that need no other column. */
export const Page = entity('Page', { url: text({ normalize: url() }), title: plain() })
export type Page = InstanceType<typeof Page>
