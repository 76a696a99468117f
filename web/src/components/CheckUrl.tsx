import { useLocalStorage } from '@mantine/hooks';
import { unknownCheckUrl } from '~/domain/snippets';
import { useSession } from '~/session';

export function useCheckUrl() {
  const { check_url } = useSession();
  const [typed, type] = useLocalStorage({
    key: 'sluice-check-url',
    defaultValue: '',
    getInitialValueInEffect: false,
  });
  return { url: check_url ?? (typed || unknownCheckUrl), isKnown: check_url !== null, typed, type };
}

export function CheckUrlHint() {
  const { isKnown, typed } = useCheckUrl();
  if (isKnown || typed) return null;
  return (
    <p className="soft">
      Replace <code>{unknownCheckUrl}</code> with the URL of your check endpoint, which has another port than this page.
      Set <code>SLUICE_CHECK_URL</code> on the server to fill it in for everyone.
    </p>
  );
}
